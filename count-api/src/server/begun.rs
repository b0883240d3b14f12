//! Which version of HTTP a connection begins to speak, by its first bytes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// What a client sends that knows we speak HTTP/2, and no request of HTTP/1 begins with.
const HTTP2: [u8; 4] = *b"PRI ";

/// A stream with its first bytes put back.
#[derive(Debug)]
pub(super) struct Begun<S> {
    head: [u8; HTTP2.len()],
    /// How many were read, and how many of them were given out again.
    read: usize,
    given: usize,
    stream: S,
}

impl<S: AsyncRead + Unpin> Begun<S> {
    /// Reads of `stream` as much as tells the version. One that ends earlier begins no HTTP/2.
    pub(super) async fn of(stream: S) -> io::Result<Self> {
        let mut begun = Self { head: [0; HTTP2.len()], read: 0, given: 0, stream };
        while begun.read < HTTP2.len() && begun.head[..begun.read] == HTTP2[..begun.read] {
            match begun.stream.read(&mut begun.head[begun.read..]).await? {
                0 => break,
                more => begun.read += more,
            }
        }
        Ok(begun)
    }

    /// Whether it is HTTP/2.
    pub(super) fn is_http2(&self) -> bool {
        self.head == HTTP2
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Begun<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.given == this.read {
            return Pin::new(&mut this.stream).poll_read(cx, buffer);
        }
        let more = buffer.remaining().min(this.read - this.given);
        buffer.put_slice(&this.head[this.given..this.given + more]);
        this.given += more;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Begun<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn the_first_bytes_tell_the_version_in_any_pieces_and_are_read_again() {
        for (sent, is_http2) in [
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", true),
            ("GET / HTTP/1.1\r\n", false),
            ("POST / HTTP/1.1\r\n", false),
            ("PRINT", false),
            ("PR", false),
            ("", false),
        ] {
            for piece in [1, 3, 64] {
                let (ours, mut theirs) = duplex(1);
                let sending = async {
                    for piece in sent.as_bytes().chunks(piece) {
                        theirs.write_all(piece).await.unwrap();
                    }
                    drop(theirs);
                };
                let reading = async {
                    let mut begun = Begun::of(ours).await.unwrap();
                    let (told, mut text) = (begun.is_http2(), String::new());
                    begun.read_to_string(&mut text).await.unwrap();
                    (told, text)
                };
                let ((), (told, text)) = tokio::join!(sending, reading);
                assert_eq!((told, text.as_str()), (is_http2, sent), "in pieces of {piece}");
            }
        }
    }
}
