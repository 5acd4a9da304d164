# The service and the client in one binary, and beside it the agent that nodes fetch, on a slim base.
# For x86-64 wherever it is built, as nodes are: the agent's script builds for its own machine.
FROM --platform=linux/amd64 rust:1.95-slim-bookworm AS build
WORKDIR /src
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
COPY . .
# The agent is built by its own script: nodes have older C libraries than this image.
RUN cargo build --release --locked --package broker && verifier/build-agent.sh

FROM --platform=linux/amd64 debian:bookworm-slim
# The providers' certificates are checked against the system's roots.
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /var/lib/broker --create-home broker
COPY --from=build /src/target/release/broker /usr/local/bin/broker
# Nodes are other machines: they are served this file, and it runs there.
COPY --from=build /src/target/x86_64-unknown-linux-gnu/agent/verifier /usr/local/lib/broker/agent
ENV BROKER__VERIFIER__AGENT_PATH=/usr/local/lib/broker/agent
USER broker
WORKDIR /var/lib/broker
EXPOSE 8080
ENTRYPOINT ["broker"]
CMD ["serve", "--listen", "0.0.0.0:8080", "--data-dir", "/var/lib/broker"]
