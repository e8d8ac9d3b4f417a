# A server on a CPU: `docker build -t radixserve .`, then `docker run -p 8000:8000 -e RADIXSERVE_API_KEY=secret radixserve`.
# The build argument TORCH_INDEX is PyTorch's index of CPU builds (docs/install.md); without it the image gets CUDA's, and gigabytes.
FROM python:3.11-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
ARG TORCH_INDEX=""
ARG TORCH="torch==2.13.0"
RUN python -m venv /opt/radixserve
ENV PATH=/opt/radixserve/bin:$PATH
RUN if [ -n "$TORCH_INDEX" ]; then pip install --no-cache-dir --index-url "$TORCH_INDEX" "$TORCH"; else pip install --no-cache-dir "$TORCH"; fi
WORKDIR /source
COPY . .
RUN pip install --no-cache-dir -c constraints.txt .

FROM python:3.11-slim
RUN useradd --create-home --uid 1000 radixserve && mkdir /models && chown radixserve /models
COPY --from=build /opt/radixserve /opt/radixserve
ENV PATH=/opt/radixserve/bin:$PATH RADIXSERVE_CACHE=/models HF_HOME=/models/huggingface
USER 1000
VOLUME /models
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=25s --start-period=10m \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=20)"]
# A server that others reach needs a key: set RADIXSERVE_API_KEY.
ENTRYPOINT ["radixserve"]
CMD ["serve", "--host", "0.0.0.0"]
