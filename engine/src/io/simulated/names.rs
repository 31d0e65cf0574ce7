//! The directories of the simulated disk: names now, names on the medium, and changes between the two.
//!
//! Knows no file content. A change of names is atomic; it is durable once every directory it touches was synced.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path};

use fastrand::Rng;

use super::file_content::PowerLoss;

/// The number of a file or directory, never used twice.
pub(super) type Inode = u64;

/// The directory everything hangs from. Always there.
const ROOT: Inode = 0;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) inode: Inode,
    pub(super) is_directory: bool,
}

#[derive(Debug, Default)]
struct Directory {
    current: BTreeMap<String, Entry>,
    /// On the medium, each with the number of the change that put it there; `None` is a removed name.
    durable: BTreeMap<String, (u64, Option<Entry>)>,
}

#[derive(Clone, Debug)]
struct Naming {
    directory: Inode,
    name: String,
    entry: Option<Entry>,
}

#[derive(Debug)]
struct Change {
    number: u64,
    namings: Vec<Naming>,
    /// Directories still to be synced.
    unsynced: BTreeSet<Inode>,
    /// A sync of it failed: no later sync makes it durable.
    is_doomed: bool,
}

/// All names of one disk.
#[derive(Debug)]
pub(super) struct Names {
    directories: BTreeMap<Inode, Directory>,
    changes: Vec<Change>,
    last_inode: Inode,
}

impl Names {
    pub(super) fn new() -> Names {
        Names {
            directories: BTreeMap::from([(ROOT, Directory::default())]),
            changes: Vec::new(),
            last_inode: ROOT,
        }
    }

    /// What `path` stands for now.
    pub(super) fn find(&self, path: &Path) -> io::Result<Entry> {
        let mut entry = Entry { inode: ROOT, is_directory: true };
        for component in path.components() {
            let Component::Normal(name) = component else { continue };
            let directory =
                self.directories.get(&entry.inode).ok_or(io::ErrorKind::NotADirectory)?;
            let name = name.to_str().ok_or(io::ErrorKind::InvalidFilename)?;
            entry = *directory.current.get(name).ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(entry)
    }

    /// Lists a directory.
    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<(String, Entry)>> {
        let directory = self.directory(path)?;
        let current = &self.directories[&directory].current;
        Ok(current.iter().map(|(name, entry)| (name.clone(), *entry)).collect())
    }

    /// Names a new file.
    pub(super) fn create_file(&mut self, number: u64, path: &Path) -> io::Result<Inode> {
        let (directory, name) = self.split(path)?;
        if self.directories[&directory].current.contains_key(&name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.last_inode += 1;
        let entry = Entry { inode: self.last_inode, is_directory: false };
        self.change(number, vec![Naming { directory, name, entry: Some(entry) }]);
        Ok(entry.inode)
    }

    /// Makes a directory, unless it is there already.
    pub(super) fn create_directory(&mut self, number: u64, path: &Path) -> io::Result<()> {
        match self.find(path) {
            Ok(entry) if entry.is_directory => return Ok(()),
            Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => {}
        }
        let (directory, name) = self.split(path)?;
        self.last_inode += 1;
        let entry = Entry { inode: self.last_inode, is_directory: true };
        self.directories.insert(entry.inode, Directory::default());
        self.change(number, vec![Naming { directory, name, entry: Some(entry) }]);
        Ok(())
    }

    /// Gives a file or directory a new name.
    pub(super) fn rename(&mut self, number: u64, from: &Path, to: &Path) -> io::Result<()> {
        let entry = self.find(from)?;
        let (from_directory, from_name) = self.split(from)?;
        let (to_directory, to_name) = self.split(to)?;
        if let Ok(replaced) = self.find(to) {
            if replaced == entry {
                return Ok(());
            }
            self.check_replaceable(entry, replaced)?;
        }
        let namings = vec![
            Naming { directory: from_directory, name: from_name, entry: None },
            Naming { directory: to_directory, name: to_name, entry: Some(entry) },
        ];
        self.change(number, namings);
        Ok(())
    }

    /// Removes the name of a file, or of an empty directory.
    pub(super) fn remove(
        &mut self,
        number: u64,
        path: &Path,
        is_directory: bool,
    ) -> io::Result<()> {
        let entry = self.find(path)?;
        match (entry.is_directory, is_directory) {
            (true, false) => return Err(io::ErrorKind::IsADirectory.into()),
            (false, true) => return Err(io::ErrorKind::NotADirectory.into()),
            (true, true) if !self.directories[&entry.inode].current.is_empty() => {
                return Err(io::ErrorKind::DirectoryNotEmpty.into());
            }
            _ => {}
        }
        let (directory, name) = self.split(path)?;
        self.change(number, vec![Naming { directory, name, entry: None }]);
        Ok(())
    }

    /// The directory that `path` stands for.
    pub(super) fn directory(&self, path: &Path) -> io::Result<Inode> {
        let entry = self.find(path)?;
        if entry.is_directory {
            return Ok(entry.inode);
        }
        Err(io::ErrorKind::NotADirectory.into())
    }

    /// Makes the changes up to `number` in one directory durable.
    pub(super) fn sync(&mut self, number: u64, directory: Inode) {
        for change in &mut self.changes {
            if change.number <= number && !change.is_doomed {
                change.unsynced.remove(&directory);
            }
        }
        let (durable, rest): (Vec<_>, Vec<_>) =
            self.changes.drain(..).partition(|change| change.unsynced.is_empty());
        self.changes = rest;
        durable.iter().for_each(|change| self.make_durable(change));
    }

    /// A sync that failed: some of the changes are durable, the others are by no later sync.
    pub(super) fn fail_sync(&mut self, number: u64, directory: Inode, random: &mut Rng) {
        for change in &mut self.changes {
            if change.number <= number && change.unsynced.contains(&directory) {
                change.is_doomed |= random.bool();
            }
        }
        self.sync(number, directory);
    }

    /// Loses power: names are what the medium holds, with those unsynced changes that survive.
    pub(super) fn lose_power(&mut self, loss: PowerLoss, random: &mut Rng) {
        let changes = std::mem::take(&mut self.changes);
        let is_prefix = random.bool();
        let prefix = random.usize(..=changes.len());
        for (index, change) in changes.iter().enumerate() {
            let survives = match loss {
                PowerLoss::LoseUnsynced => false,
                PowerLoss::KeepUnsynced => true,
                PowerLoss::Random | PowerLoss::Mixed if is_prefix => index < prefix,
                PowerLoss::Random | PowerLoss::Mixed => random.bool(),
            };
            if survives {
                self.make_durable(change);
            }
        }
        for directory in self.directories.values_mut() {
            directory.durable.retain(|_, (_, entry)| entry.is_some());
            let names = directory.durable.iter();
            directory.current =
                names.filter_map(|(name, (_, entry))| Some((name.clone(), (*entry)?))).collect();
        }
    }

    /// Every file and directory that a name, durable or not, still leads to. Forgets other directories.
    pub(super) fn collect(&mut self) -> BTreeSet<Inode> {
        let mut live = BTreeSet::from([ROOT]);
        let mut visit = vec![ROOT];
        while let Some(inode) = visit.pop() {
            let Some(directory) = self.directories.get(&inode) else { continue };
            let durable = directory.durable.values().filter_map(|(_, entry)| entry.as_ref());
            for entry in directory.current.values().chain(durable) {
                if live.insert(entry.inode) {
                    visit.push(entry.inode);
                }
            }
        }
        for naming in self.changes.iter().flat_map(|change| &change.namings) {
            live.insert(naming.directory);
            live.extend(naming.entry.map(|entry| entry.inode));
        }
        self.directories.retain(|inode, _| live.contains(inode));
        live
    }

    fn check_replaceable(&self, entry: Entry, replaced: Entry) -> io::Result<()> {
        match (entry.is_directory, replaced.is_directory) {
            (false, false) => Ok(()),
            (false, true) => Err(io::ErrorKind::IsADirectory.into()),
            (true, false) => Err(io::ErrorKind::NotADirectory.into()),
            (true, true) if self.directories[&replaced.inode].current.is_empty() => Ok(()),
            (true, true) => Err(io::ErrorKind::DirectoryNotEmpty.into()),
        }
    }

    fn split(&self, path: &Path) -> io::Result<(Inode, String)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let name = name.to_str().ok_or(io::ErrorKind::InvalidFilename)?;
        let parent = path.parent().unwrap_or(Path::new("/"));
        Ok((self.directory(parent)?, name.to_owned()))
    }

    fn change(&mut self, number: u64, namings: Vec<Naming>) {
        for naming in &namings {
            let directory = self.directories.get_mut(&naming.directory).expect("just found");
            match naming.entry {
                Some(entry) => directory.current.insert(naming.name.clone(), entry),
                None => directory.current.remove(&naming.name),
            };
        }
        let unsynced = namings.iter().map(|naming| naming.directory).collect();
        self.changes.push(Change { number, namings, unsynced, is_doomed: false });
    }

    fn make_durable(&mut self, change: &Change) {
        for naming in &change.namings {
            let Some(directory) = self.directories.get_mut(&naming.directory) else { continue };
            let slot = directory.durable.entry(naming.name.clone()).or_insert((0, None));
            // A later change of the same name may have become durable first.
            if slot.0 <= change.number {
                *slot = (change.number, naming.entry);
            }
        }
    }
}
