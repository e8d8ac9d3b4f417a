"""JSON Schemas: rewritten into what the grammar library holds to, and checked against finished answers."""
