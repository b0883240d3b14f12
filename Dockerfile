# One image a service: docker build --target consumer .

FROM rust:1.95.0-bookworm AS build
WORKDIR /src
COPY . .
# What was downloaded and compiled stays between builds; only what the images hold leaves this layer.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --locked --release \
      --package tally-consumer --package tally-change-streamer --package tally-batch-recount --package tally-count-api \
      --package tally-trends --package tally-cli \
    && infra/images --layout target/release /image

FROM scratch AS tally
USER 10001
# A container has an address of its own; who may reach it is decided where its port is published.
ENV TALLY_ADMIN_LISTEN=0.0.0.0:9090
EXPOSE 9090
# Without a shell: nothing of the image needs one, and there is none.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s CMD ["tally", "probe", "http://127.0.0.1:9090/livez"]

FROM tally AS consumer
COPY --from=build /image/consumer/ /
ENTRYPOINT ["tally-consumer"]

FROM tally AS change-streamer
COPY --from=build /image/change-streamer/ /
ENTRYPOINT ["tally-change-streamer"]

FROM tally AS batch-recount
COPY --from=build /image/batch-recount/ /
ENTRYPOINT ["tally-batch-recount"]

FROM tally AS count-api
COPY --from=build /image/count-api/ /
ENV TALLY_LISTEN=0.0.0.0:8080
EXPOSE 8080
ENTRYPOINT ["tally-count-api"]

FROM tally AS trends
COPY --from=build /image/trends/ /
ENTRYPOINT ["tally-trends"]
