# syntax=docker/dockerfile:1
# One image of all services (--target tally, as infra/ runs it), and one target a service: docker build --target consumer .

FROM rust:1.95.0-bookworm AS build
WORKDIR /src
COPY . .
# What was downloaded and compiled stays between builds; only the binaries leave this layer.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --locked --profile dist \
      --package tally-consumer --package tally-change-streamer --package tally-batch-recount --package tally-count-api \
      --package tally-cli \
      --features tally-consumer/msk-iam,tally-change-streamer/msk-iam,tally-batch-recount/msk-iam,tally-count-api/msk-iam \
    && install -D --strip --target-directory=/out \
      target/dist/tally-consumer target/dist/tally-change-streamer \
      target/dist/tally-batch-recount target/dist/tally-count-api target/dist/tally

FROM debian:12.12-slim AS tally
# The authorities that AWS's and the brokers' certificates are checked against.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin tally
COPY --from=build /out/ /usr/local/bin/
USER 10001
# A container has an address of its own; who may reach it is decided where its port is published.
ENV TALLY_ADMIN_LISTEN=0.0.0.0:9090
EXPOSE 9090
# Without a shell: nothing of the image needs one.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s CMD ["tally", "probe", "http://127.0.0.1:9090/livez"]

FROM tally AS consumer
ENTRYPOINT ["tally-consumer"]

FROM tally AS change-streamer
ENTRYPOINT ["tally-change-streamer"]

FROM tally AS batch-recount
ENTRYPOINT ["tally-batch-recount"]

FROM tally AS count-api
ENV TALLY_LISTEN=0.0.0.0:8080
EXPOSE 8080
ENTRYPOINT ["tally-count-api"]
