//! The rules of [`Transport`], [`Listener`] and [`Connection`] that need no fault to be seen.

use std::net::SocketAddr;

use bytes::Bytes;
use futures_util::future::{join, join_all};

use crate::io::transport::{Connection, FRAME_BYTES_MAX, Listener, Transport, TransportError};

/// Checks `transport`, listening on `address`, whose port is 0.
///
/// # Panics
///
/// Where the transport breaks a rule.
pub async fn check_transport<T: Transport>(transport: &T, address: SocketAddr) {
    let listener = transport.listen(address).await.expect("the address is free");
    assert_eq!(listener.local_address().ip(), address.ip());
    assert_ne!(listener.local_address().port(), 0, "a free port was taken");

    frames_of_every_size_arrive(transport, &listener).await;
    many_frames_arrive_in_order(transport, &listener).await;
    frame_over_the_limit_is_refused(transport, &listener).await;
    sends_never_interleave(transport, &listener).await;
    both_directions_work_at_once(transport, &listener).await;
    dropped_receive_loses_nothing(transport, &listener).await;
    dropped_send_leaves_no_broken_frame(transport, &listener).await;
    dropped_accept_loses_nothing(transport, &listener).await;
    closing_ends_both_sides(transport, &listener).await;
    last_clone_dropped_closes(transport, &listener).await;
    addresses_are_exclusive(transport, listener).await;
}

async fn pair<T: Transport>(
    transport: &T,
    listener: &T::Listener,
) -> (T::Connection, T::Connection) {
    let target = listener.local_address();
    let (dialled, accepted) = join(transport.connect(target), listener.accept()).await;
    let dialled = dialled.expect("somebody listens");
    assert_eq!(dialled.peer(), target);
    (dialled, accepted.expect("somebody connects"))
}

/// `length` bytes that differ from place to place and from `seed` to `seed`.
fn pattern(seed: u8, length: usize) -> Bytes {
    (0..length).map(|at| (at % 251).to_le_bytes()[0].wrapping_add(seed)).collect()
}

async fn receive<C: Connection>(connection: &C) -> Bytes {
    let frame = connection.receive().await.expect("the connection stands");
    frame.expect("the peer has not closed")
}

async fn frames_of_every_size_arrive<T: Transport>(transport: &T, listener: &T::Listener) {
    let (dialled, accepted) = pair(transport, listener).await;

    for length in [0, 1, 3, 4, 4096, 65_535, 65_536, 1 << 20, FRAME_BYTES_MAX] {
        let frame = pattern(1, length);
        let middle = length / 3;
        let parts = vec![frame.slice(..middle), Bytes::new(), frame.slice(middle..)];
        let (sent, received) = join(dialled.send(parts), receive(&accepted)).await;
        sent.expect("the frame is sent");
        assert!(received == frame, "a frame of {length} bytes arrives as sent");
    }

    let parts: Vec<Bytes> = (0..5000).map(|part| pattern(2, part % 7)).collect();
    let whole: Bytes = parts.iter().flatten().copied().collect();
    let (sent, received) = join(dialled.send(parts), receive(&accepted)).await;
    sent.expect("the frame is sent");
    assert!(received == whole, "a frame of 5000 parts arrives as sent");
}

async fn many_frames_arrive_in_order<T: Transport>(transport: &T, listener: &T::Listener) {
    let (dialled, accepted) = pair(transport, listener).await;

    let send = async {
        for number in 0..5000_u32 {
            let parts = vec![Bytes::copy_from_slice(&number.to_le_bytes())];
            dialled.send(parts).await.expect("the frame is sent");
        }
        dialled.close();
    };
    let receive = async {
        let mut held = Vec::new();
        while let Some(frame) = accepted.receive().await.expect("the connection stands") {
            held.push(frame);
        }
        held
    };
    let ((), frames) = join(send, receive).await;

    assert_eq!(frames.len(), 5000);
    for (number, frame) in (0..5000_u32).zip(frames) {
        assert_eq!(frame.as_ref(), number.to_le_bytes());
    }
}

async fn frame_over_the_limit_is_refused<T: Transport>(transport: &T, listener: &T::Listener) {
    let (dialled, accepted) = pair(transport, listener).await;

    let parts = vec![pattern(0, FRAME_BYTES_MAX), Bytes::from_static(b"x")];
    let refused = dialled.send(parts).await;

    let Err(TransportError::FrameTooLarge { bytes, bytes_max, address }) = refused else {
        panic!("an oversized frame was taken: {refused:?}");
    };
    assert_eq!((bytes, bytes_max), (FRAME_BYTES_MAX as u64 + 1, FRAME_BYTES_MAX as u64));
    assert_eq!(address, dialled.peer());
    dialled.send(vec![pattern(3, 10)]).await.expect("nothing of it was sent");
    assert_eq!(receive(&accepted).await, pattern(3, 10));
}

async fn sends_never_interleave<T: Transport>(transport: &T, listener: &T::Listener) {
    let (dialled, accepted) = pair(transport, listener).await;

    let sends = join_all((0..8).map(|seed| {
        let sender = dialled.clone();
        async move { sender.send(vec![pattern(seed, 500_000), pattern(seed, 7)]).await }
    }));
    let receives = async {
        for _ in 0..8 {
            let frame = receive(&accepted).await;
            let seed = frame[0];
            assert!(frame[..500_000] == pattern(seed, 500_000));
            assert!(frame[500_000..] == pattern(seed, 7));
        }
    };
    let (sent, ()) = join(sends, receives).await;

    assert!(sent.iter().all(Result::is_ok));
}

async fn both_directions_work_at_once<T: Transport>(transport: &T, listener: &T::Listener) {
    let (dialled, accepted) = pair(transport, listener).await;

    let client = async {
        for seed in 0..100 {
            dialled.send(vec![pattern(seed, 1000)]).await.expect("the frame is sent");
            assert_eq!(receive(&dialled).await, pattern(seed, 2000));
        }
    };
    let server = async {
        for seed in 0..100 {
            assert_eq!(receive(&accepted).await, pattern(seed, 1000));
            accepted.send(vec![pattern(seed, 2000)]).await.expect("the frame is sent");
        }
    };
    join(client, server).await;
}

async fn dropped_receive_loses_nothing<T: Transport>(transport: &T, listener: &T::Listener) {
    let (dialled, accepted) = pair(transport, listener).await;

    for seed in 0..20 {
        let mut begun = Box::pin(accepted.receive());
        assert!(futures_util::poll!(&mut begun).is_pending());
        drop(begun);
        dialled.send(vec![pattern(seed, 300)]).await.expect("the frame is sent");
        assert_eq!(receive(&accepted).await, pattern(seed, 300));
    }
}

/// The frame may have gone out whole, or not; a receiver never sees another's bytes inside it.
async fn dropped_send_leaves_no_broken_frame<T: Transport>(transport: &T, listener: &T::Listener) {
    let (dialled, accepted) = pair(transport, listener).await;

    let mut begun = Box::pin(dialled.send(vec![pattern(1, FRAME_BYTES_MAX)]));
    let sent = futures_util::poll!(&mut begun).is_ready();
    drop(begun);
    let second = dialled.send(vec![pattern(2, 10)]);
    let receive = async {
        let mut frames = Vec::new();
        while let Ok(Some(frame)) = accepted.receive().await {
            frames.push(frame);
            if frames.len() == 2 {
                break;
            }
        }
        frames
    };
    let (second, frames) = join(second, receive).await;

    assert!(!sent || second.is_ok(), "a frame sent whole does no harm to the next");
    for frame in frames {
        let is_whole = frame == pattern(2, 10) || frame == pattern(1, FRAME_BYTES_MAX);
        assert!(is_whole, "a frame of {} bytes that nobody sent", frame.len());
    }
}

async fn dropped_accept_loses_nothing<T: Transport>(transport: &T, listener: &T::Listener) {
    for _ in 0..3 {
        let mut begun = Box::pin(listener.accept());
        assert!(futures_util::poll!(&mut begun).is_pending());
        drop(begun);
    }

    let (dialled, accepted) = pair(transport, listener).await;
    dialled.send(vec![pattern(9, 9)]).await.expect("the frame is sent");
    assert_eq!(receive(&accepted).await, pattern(9, 9));
}

async fn closing_ends_both_sides<T: Transport>(transport: &T, listener: &T::Listener) {
    let (dialled, accepted) = pair(transport, listener).await;
    accepted.send(vec![pattern(4, 40)]).await.expect("the frame is sent");
    assert_eq!(receive(&dialled).await, pattern(4, 40));

    let mut pending = Box::pin(dialled.receive());
    assert!(futures_util::poll!(&mut pending).is_pending());
    dialled.close();

    assert!(!matches!(pending.await, Ok(Some(_))), "a pending receive ends");
    assert!(!matches!(dialled.receive().await, Ok(Some(_))), "a later one, too");
    assert!(dialled.send(vec![pattern(0, 1)]).await.is_err(), "nothing can be sent");
    assert!(matches!(accepted.receive().await, Ok(None)), "the peer sees an end between frames");
    dialled.close();
}

async fn last_clone_dropped_closes<T: Transport>(transport: &T, listener: &T::Listener) {
    let (dialled, accepted) = pair(transport, listener).await;
    let clone = dialled.clone();
    drop(dialled);
    clone.send(vec![pattern(5, 50)]).await.expect("a clone keeps the connection");

    let mut pending = Box::pin(clone.receive());
    assert!(futures_util::poll!(&mut pending).is_pending());
    drop(pending);
    drop(clone);

    assert_eq!(receive(&accepted).await, pattern(5, 50));
    assert!(matches!(accepted.receive().await, Ok(None)), "the peer sees the end");
}

async fn addresses_are_exclusive<T: Transport>(transport: &T, listener: T::Listener) {
    let taken = listener.local_address();

    let second = transport.listen(taken).await;
    let Err(TransportError::Io { address, source, .. }) = second else {
        panic!("two listeners share {taken}");
    };
    assert_eq!(address, taken);
    assert_eq!(source.kind(), std::io::ErrorKind::AddrInUse);

    drop(listener);
    let refused = transport.connect(taken).await;
    let Err(TransportError::Io { address, source, .. }) = refused else {
        panic!("connected to {taken} where nobody listens");
    };
    assert_eq!(address, taken);
    assert_eq!(source.kind(), std::io::ErrorKind::ConnectionRefused);
    let again = transport.listen(taken).await;
    assert!(again.is_ok(), "an address let go can be used at once");
}
