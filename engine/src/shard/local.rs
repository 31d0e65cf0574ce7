//! The shards that live on the current thread, so that calls made there skip the mailbox.

use std::cell::RefCell;
use std::rc::Rc;

use super::request::Request;

/// Takes requests on the shard's own thread.
pub(crate) trait LocalShard {
    /// Handles one request now; its answer may come later.
    fn dispatch(self: Rc<Self>, request: Request);
}

/// Tells shards apart across engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShardKey(pub(crate) u64);

thread_local! {
    // One entry a shard; in simulation one thread has several.
    static SHARDS: RefCell<Vec<(ShardKey, Rc<dyn LocalShard>)>> = const { RefCell::new(Vec::new()) };
}

/// Returns the shard if it lives on this thread.
pub(crate) fn find(key: ShardKey) -> Option<Rc<dyn LocalShard>> {
    SHARDS.with_borrow(|shards| {
        shards.iter().find(|(other, _)| *other == key).map(|(_, shard)| shard.clone())
    })
}

/// Keeps a shard findable on this thread until dropped.
#[derive(Debug)]
pub(crate) struct Registration(ShardKey);

impl Registration {
    pub(crate) fn new(key: ShardKey, shard: Rc<dyn LocalShard>) -> Registration {
        SHARDS.with_borrow_mut(|shards| shards.push((key, shard)));
        Registration(key)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Taken out first: dropping the shard may run code that looks here.
        let gone = SHARDS.try_with(|shards| {
            let mut shards = shards.borrow_mut();
            let place = shards.iter().position(|(key, _)| *key == self.0)?;
            Some(shards.swap_remove(place))
        });
        drop(gone);
    }
}
