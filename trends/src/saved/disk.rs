//! The files of one partition: a stretch each, never changed, and a manifest that is replaced as a whole. What is not as the manifest
//! says is not there, and then the log is read.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tally_core::fence::TopicId;

use super::{About, Keep, Saved, Stretch};

const MANIFEST: &str = "manifest";
/// What a file is called until it is whole.
const UNFINISHED: &str = "unfinished";

/// The form that manifests are written in.
const VERSION: u64 = 1;

/// The folder of one partition.
#[derive(Clone, Debug)]
pub struct Disk {
    folder: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Manifest {
    v: u64,
    topic: String,
    bucket: u64,
    stretches: Vec<Entry>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Entry {
    /// Of the file.
    bytes: u64,
    checksum: u32,
    #[serde(flatten)]
    about: About,
}

impl Entry {
    fn name(&self) -> String {
        format!("{}-{}-{:08x}", self.about.from, self.about.to, self.checksum)
    }
}

/// Makes a folder, and a file in it that goes again.
///
/// # Errors
/// A folder that cannot be made, or takes no files.
pub fn try_folder(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let file = folder.join(format!("{UNFINISHED}-{}", std::process::id()));
    File::create(&file)?.sync_all()?;
    fs::remove_file(file)
}

impl Disk {
    /// That of a partition of a topic, under a folder that others may have, too.
    pub fn new(root: &Path, topic: &str, partition: u32) -> Self {
        Self { folder: root.join(format!("{topic}-{partition}")) }
    }

    /// What there is, by the manifest; `None` without one that is whole.
    pub fn saved(&self) -> Option<Saved> {
        let Manifest { topic, bucket, stretches, .. } = self.manifest()?;
        let stretches = stretches.into_iter().map(|entry| entry.about).collect();
        Some(Saved { topic: TopicId(topic.into()), bucket, stretches })
    }

    /// A stretch of the manifest; `None` where it is not byte for byte what was written.
    pub fn stretch(&self, about: &About) -> Option<Stretch> {
        let entry = self.manifest()?.stretches.into_iter().find(|entry| entry.about == *about)?;
        let bytes = fs::read(self.folder.join(entry.name())).ok()?;
        let is_whole = bytes.len() as u64 == entry.bytes && crc32fast::hash(&bytes) == entry.checksum;
        is_whole.then(|| Stretch::from_bytes(&bytes)).flatten().filter(|stretch| stretch.about == *about)
    }

    /// Keeps a stretch, and drops what is not needed any more. Safe to be ended anywhere: the manifest that stands names files that are
    /// whole, and a name of it that has no file any more makes it useless, not wrong.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn keep(&self, keep: &Keep) -> io::Result<()> {
        let about = keep.stretch.about;
        fs::create_dir_all(&self.folder)?;
        let bytes = keep.stretch.to_bytes();
        let entry = Entry { bytes: bytes.len() as u64, checksum: crc32fast::hash(&bytes), about };
        self.put(&entry.name(), &bytes)?;
        let before = self.manifest().filter(|_| !keep.is_first);
        let before = before.filter(|manifest| manifest.topic == *keep.topic.0 && manifest.bucket == keep.bucket);
        let mut stretches = before.map_or(Vec::new(), |manifest| manifest.stretches);
        stretches.retain(|entry| entry.about.to <= about.from);
        if stretches.last().is_some_and(|last| last.about.to != about.from) {
            stretches.clear();
        }
        stretches.push(entry);
        let old = stretches.iter().take_while(|entry| entry.about.until < keep.needed.0).count();
        stretches.drain(..old);
        let names: Vec<String> = stretches.iter().map(Entry::name).collect();
        let manifest = Manifest { v: VERSION, topic: keep.topic.0.to_string(), bucket: keep.bucket, stretches };
        let text = serde_json::to_string(&manifest)?;
        self.put(MANIFEST, format!("{text}\n{:08x}\n", crc32fast::hash(text.as_bytes())).as_bytes())?;
        for file in fs::read_dir(&self.folder)? {
            let file = file?;
            let name = file.file_name();
            if name != MANIFEST && !names.iter().any(|kept| name == kept.as_str()) {
                fs::remove_file(file.path())?;
            }
        }
        Ok(())
    }

    fn manifest(&self) -> Option<Manifest> {
        let text = fs::read_to_string(self.folder.join(MANIFEST)).ok()?;
        let (json, checksum) = text.strip_suffix('\n')?.split_once('\n')?;
        let is_whole = checksum == format!("{:08x}", crc32fast::hash(json.as_bytes()));
        let manifest: Manifest = is_whole.then(|| serde_json::from_str(json).ok()).flatten()?;
        (manifest.v == VERSION).then_some(manifest)
    }

    /// Puts a whole file under a name, at once.
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let unfinished = self.folder.join(format!("{UNFINISHED}-{name}"));
        let mut file = File::create(&unfinished)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&unfinished, self.folder.join(name))?;
        File::open(&self.folder)?.sync_all()
    }
}
