//! A TCP line broker on the engine, no sidecar: `PUT text` appends and answers the offset once it is synced,
//! `GET offset` answers the records from there on, a line each, then an empty line.
//!
//! cargo run -p palisade-engine --example tiny_broker -- /tmp/broker 127.0.0.1:7001

use std::net::SocketAddr;

use palisade_engine::Partition;
use palisade_engine::engine::{Engine, IoChoice};
use palisade_engine::format::RecordBatch;
use palisade_engine::id::Offset;
use palisade_engine::partition::{AppendOptions, Read};
use tokio_uring::net::{TcpListener, TcpStream};

type Error = Box<dyn std::error::Error>;

/// The longest line a client may send.
const LINE_BYTES_MAX: usize = 1 << 20;

fn main() -> Result<(), Error> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [directory, address] = &arguments[..] else { return Err("DIRECTORY ADDRESS".into()) };
    let address: SocketAddr = address.parse()?;
    let engine = Engine::builder(directory).shards(1).io(IoChoice::Uring).open()?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let log = runtime.block_on(engine.open_partition(&"lines/0".parse()?))?;
    println!("lines/0 ends at {}; listening on {address}", log.watermarks().log_end);
    // Connections live on the partition's own shard: calls to it need no hop between threads.
    let (ended, wait) = std::sync::mpsc::channel();
    engine.spawn_on(log.shard(), move || async move {
        if let Err(error) = accept(address, log).await {
            eprintln!("{error}");
        }
        ended.send(()).expect("the main thread waits for this");
    })?;
    wait.recv()?;
    runtime.block_on(engine.close())?;
    Ok(())
}

async fn accept(address: SocketAddr, log: Partition) -> Result<(), Error> {
    let listener = TcpListener::bind(address)?;
    loop {
        let (stream, peer) = listener.accept().await?;
        let log = log.clone();
        tokio_uring::spawn(async move {
            if let Err(error) = serve(stream, &log).await {
                eprintln!("{peer}: {error}");
            }
        });
    }
}

async fn serve(stream: TcpStream, log: &Partition) -> Result<(), Error> {
    let (mut pending, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    while pending.len() <= LINE_BYTES_MAX {
        let (read, returned) = stream.read(buffer).await;
        buffer = returned;
        let bytes = read?;
        if bytes == 0 {
            return Ok(());
        }
        pending.extend_from_slice(&buffer[..bytes]);
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            let answer = answer(line.trim_ascii_end(), log).await;
            let answer = answer.unwrap_or_else(|error| format!("ERR {error}\n").into_bytes());
            stream.write_all(answer).await.0?;
        }
    }
    Err("the line is too long".into())
}

async fn answer(line: &[u8], log: &Partition) -> Result<Vec<u8>, Error> {
    if let Some(text) = line.strip_prefix(b"PUT ") {
        let appended = log.append(RecordBatch::single(text)?, AppendOptions::default()).await?;
        return Ok(format!("OK {}\n", appended.base_offset).into_bytes());
    }
    let offset = line.strip_prefix(b"GET ").ok_or("PUT text or GET offset")?;
    let from = Offset(std::str::from_utf8(offset)?.parse()?);
    let mut lines = Vec::new();
    for batch in log.read(Read::from(from)).await?.batches {
        for (_, record) in batch.iter().filter(|(offset, _)| *offset >= from) {
            lines.extend_from_slice(record);
            lines.push(b'\n');
        }
    }
    lines.push(b'\n');
    Ok(lines)
}
