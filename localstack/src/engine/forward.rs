//! A port that people know, in front of the one that the embedded Kafka picked: bytes are forwarded both ways.

use tally_service::{Stop, Task};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Forwards what connects to `listener` to the address `to`. A Kafka client needs it once: it is told the real port then.
pub(super) struct Forward {
    pub(super) listener: TcpListener,
    pub(super) to: String,
}

impl Task for Forward {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        // Dropped with this task, and its connections with it.
        let mut connections = JoinSet::new();
        while let Ok(accepted) = stop.unless_requested(self.listener.accept()).await {
            while connections.try_join_next().is_some() {}
            // A client may be gone before it is accepted.
            let Ok((mut client, _)) = accepted else { continue };
            let to = self.to.clone();
            connections.spawn(async move {
                if let Ok(mut server) = TcpStream::connect(to).await {
                    // Either side may break off.
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                }
            });
        }
        Ok(())
    }
}
