"""A real server over replicas, in processes of its own, for tests."""

PROGRAM = """
import json, sys
from radixserve.config import EngineConfig, ReplicaConfig, ServerConfig
from radixserve.router.local import serve_replicas
engine, server = (json.loads(text) for text in sys.argv[1:])
sys.exit(serve_replicas(EngineConfig(**engine), ServerConfig(**server), ReplicaConfig(replicas=2)))
"""
