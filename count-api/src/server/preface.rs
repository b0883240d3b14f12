//! Recognizes by a connection's first bytes whether its client speaks HTTP/1 or HTTP/2, so that one port serves both.

use std::io::{self, Cursor};

use tokio::io::{AsyncRead, AsyncReadExt, Chain};

/// The first bytes of a client that knows we speak HTTP/2. No request of HTTP/1 begins with them.
const HTTP2: [u8; 4] = *b"PRI ";

/// Reads enough of `stream` to know the version. Returns whether it is HTTP/2, and the stream with those bytes put
/// back. A stream that ends earlier is not HTTP/2.
pub(super) async fn is_http2<S: AsyncRead + Unpin>(mut stream: S) -> io::Result<(bool, Chain<Cursor<Vec<u8>>, S>)> {
    let (mut head, mut read) = ([0; HTTP2.len()], 0);
    while read < HTTP2.len() && head[..read] == HTTP2[..read] {
        match stream.read(&mut head[read..]).await? {
            0 => break,
            more => read += more,
        }
    }
    Ok((head == HTTP2, Cursor::new(head[..read].to_vec()).chain(stream)))
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
                let (ours, mut theirs) = duplex(piece);
                let sending = async move { theirs.write_all(sent.as_bytes()).await.unwrap() };
                let reading = async {
                    let (told, mut stream) = super::is_http2(ours).await.unwrap();
                    let mut text = String::new();
                    stream.read_to_string(&mut text).await.unwrap();
                    (told, text)
                };
                let ((), (told, text)) = tokio::join!(sending, reading);
                assert_eq!((told, text.as_str()), (is_http2, sent), "in pieces of {piece}");
            }
        }
    }
}
