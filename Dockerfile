# One binary on a slim base: the service and the client.
FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY . .
RUN cargo build --release --locked --package broker

FROM debian:bookworm-slim
# The providers' certificates are checked against the system's roots.
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /var/lib/broker --create-home broker
COPY --from=build /src/target/release/broker /usr/local/bin/broker
USER broker
WORKDIR /var/lib/broker
EXPOSE 8080
ENTRYPOINT ["broker"]
CMD ["serve", "--listen", "0.0.0.0:8080", "--data-dir", "/var/lib/broker"]
