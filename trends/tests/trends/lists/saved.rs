//! What a disk keeps of the log, held against the log itself.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use tally_core::fence::{Offset, TopicId};
use tally_core::ports::log::Records;
use tally_core::time::UnixMillis;
use tally_trends::partition::{Effect, Input, Publication};
use tally_trends::saved::{Disk, Keep, Stretch};
use tally_trends::{Partition, Standing};

use super::world::{Partitioned, World};

/// Of how many milliseconds stretches are.
const EVERY: u64 = 20_000;

/// A folder that goes with its test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("tally-trends-{}-{nth}", std::process::id())))
    }

    fn disk(&self) -> Disk {
        Disk::new(&self.0, "changes", 0)
    }

    /// Every file there is, with what is in it.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let files = fs::read_dir(self.0.join("changes-0")).unwrap().map(|file| file.unwrap().path());
        let mut files: Vec<_> = files.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
        files.sort();
        files
    }

    /// As it was.
    fn put_back(&self, files: &[(PathBuf, Vec<u8>)]) {
        for (path, _) in self.files() {
            fs::remove_file(path).unwrap();
        }
        for (path, bytes) in files {
            fs::write(path, bytes).unwrap();
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process that begins with the first partition of a world.
#[derive(Default)]
struct Started {
    published: Option<Publication>,
    loaded: usize,
    read: usize,
}

/// What it publishes first. It has a disk or none.
fn start(world: &World, disk: Option<&Disk>) -> Started {
    start_with(world, disk, usize::MAX)
}

/// The same where no more than so many records come at once.
fn start_with(world: &World, disk: Option<&Disk>, most: usize) -> Started {
    let mut machine = Partition::new(world.setup(0, "w"));
    if let Some(disk) = disk {
        machine = machine.keeping(disk.saved(), EVERY);
    }
    let (log, mut started) = (&world.partitions[0], Started::default());
    let standing =
        Standing { as_of: Some(UnixMillis(world.now * 1000)), since: Some(UnixMillis(0)), lapses: vec![].into() };
    for _ in 0..4 {
        give(&mut machine, Input::Standing(standing.clone()), log, disk, &mut started);
        let from = usize::try_from(machine.position().0).unwrap();
        let mut records = Records::default();
        for (nth, (at, value)) in log.log.iter().enumerate().skip(from).take(most) {
            records.push(Offset(nth as u64), UnixMillis(at * 1000), None, Some(value), []);
        }
        if machine.reads() && !records.is_empty() {
            started.read += records.len();
            give(&mut machine, Input::Records(Arc::new(records)), log, disk, &mut started);
        }
    }
    started
}

fn give(machine: &mut Partition, input: Input, log: &Partitioned, disk: Option<&Disk>, started: &mut Started) {
    let mut inputs = vec![input];
    while let Some(input) = inputs.pop() {
        let mut effects = Vec::new();
        machine.step(input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Look(look) => inputs.push(Input::Log(look, log.log())),
                Effect::Find(at) => {
                    let found = log.log.iter().skip(log.start).position(|(written, _)| written * 1000 >= at.0);
                    inputs.push(Input::Found(found.map(|nth| Offset((log.start + nth) as u64))));
                }
                Effect::Load(about) => {
                    let stretch = disk.and_then(|disk| disk.stretch(&about)).map(Arc::new);
                    started.loaded += usize::from(stretch.is_some());
                    inputs.push(Input::Loaded(stretch));
                }
                Effect::Open(_) => inputs.push(Input::Opened),
                Effect::Keep(keep) => disk.unwrap().keep(&keep).unwrap(),
                Effect::Publish(publication) => {
                    started.published.get_or_insert(publication);
                }
                Effect::Halt(alarm) => panic!("{alarm:?}"),
                Effect::Tell(_) => {}
            }
        }
    }
}

/// With a disk it publishes what it publishes without.
fn same(world: &World, disk: &Disk) -> Started {
    let (with, without) = (start(world, Some(disk)), start(world, None));
    assert!(without.published.is_some());
    assert_eq!(with.published, without.published, "{} loaded, {} read", with.loaded, with.read);
    with
}

/// Rows come and go for some minutes, and a process with a disk reads them.
fn busy(folder: &Folder, seed: u64) -> World {
    let mut world = World::new();
    for nth in 0..200 {
        let (subject, region) =
            (u8::try_from((nth * 7 + seed) % 5 * 2).unwrap(), u8::try_from((nth + seed) % 3).unwrap());
        world.happen(subject, (nth % 3 == 2).then_some(region), (nth % 4 > 0).then_some((region + 1) % 3));
        world.settle(1);
        if nth % 40 == 39 {
            world.again(usize::try_from(nth * 13).unwrap());
            start(&world, Some(&folder.disk()));
        }
    }
    world
}

#[test]
fn a_start_from_a_disk_reads_less_and_publishes_the_same() {
    let folder = Folder::new();
    let world = busy(&folder, 1);
    let started = same(&world, &folder.disk());
    assert!(started.loaded >= 5, "{}", started.loaded);
    assert!(started.read < world.partitions[0].log.len() / 2, "{}", started.read);
}

#[test]
fn lists_are_the_same_when_a_file_is_damaged_or_missing() {
    let folder = Folder::new();
    let world = busy(&folder, 2);
    let files = folder.files();
    let other = files[0].1.clone();
    for (path, bytes) in &files {
        let mut harms: Vec<Option<Vec<u8>>> = vec![None, Some(Vec::new()), Some(other.clone())];
        harms.extend((0..bytes.len()).step_by(bytes.len() / 3 + 1).map(|end| Some(bytes[..end].to_vec())));
        harms.extend((0..bytes.len()).step_by(bytes.len() / 6 + 1).map(|at| {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            Some(bytes)
        }));
        for harm in harms.into_iter().filter(|harm| harm.as_ref() != Some(bytes)) {
            match harm {
                None => fs::remove_file(path).unwrap(),
                Some(bytes) => fs::write(path, bytes).unwrap(),
            }
            assert!(same(&world, &folder.disk()).read > 0);
            folder.put_back(&files);
        }
    }
    assert!(same(&world, &folder.disk()).loaded > 0, "it is whole again");
}

#[test]
fn a_process_that_is_killed_while_it_writes_leaves_what_was_or_what_is() {
    let folder = Folder::new();
    let mut world = busy(&folder, 3);
    let before = folder.files();
    for _ in 0..30 {
        world.happen(0, None, Some(1));
        world.settle(1);
    }
    start(&world, Some(&folder.disk()));
    let after = folder.files();
    let is_new = |file: &&(PathBuf, Vec<u8>)| !before.contains(file);
    let (manifests, stretches): (Vec<_>, Vec<_>) =
        after.iter().filter(is_new).partition(|(path, _)| path.ends_with("manifest"));
    assert!(manifests.len() == 1 && !stretches.is_empty());
    // A part of the new file, all of it under the name of what is not finished, under its own, and the new manifest without it.
    let (path, bytes) = stretches[0];
    let unfinished = path.with_file_name(format!("unfinished-{}", path.file_name().unwrap().to_str().unwrap()));
    for (name, bytes) in [(&unfinished, &bytes[..9]), (&unfinished, &bytes[..]), (path, &bytes[..])] {
        folder.put_back(&before);
        fs::write(name, bytes).unwrap();
        assert!(same(&world, &folder.disk()).loaded > 0);
    }
    folder.put_back(&before);
    fs::write(&manifests[0].0, &manifests[0].1).unwrap();
    same(&world, &folder.disk());
}

#[test]
fn a_log_that_is_another_one_is_read() {
    let folder = Folder::new();
    let mut world = busy(&folder, 4);
    assert!(start(&world, Some(&folder.disk())).loaded > 0);
    let files = folder.files();
    // Another topic; an end that was lost, and one that was written anew.
    world.partitions[0].topic = 9;
    assert_eq!(same(&world, &folder.disk()).loaded, 0);
    world.partitions[0].topic = 0;
    folder.put_back(&files);
    let log = world.partitions[0].log.clone();
    world.partitions[0].log.truncate(20);
    assert!(same(&world, &folder.disk()).loaded < 5);
    folder.put_back(&files);
    world.partitions[0].log = log.into_iter().map(|(at, value)| (at, [&value[..], b" "].concat())).collect();
    assert!(
        start(&world, Some(&folder.disk())).read >= world.partitions[0].log.len(),
        "it is not taken for the one that was"
    );
    folder.put_back(&files);
    same(&world, &folder.disk());
}

#[test]
fn nothing_is_published_before_the_last_record_that_sums_stand_for_was_compared() {
    let folder = Folder::new();
    let mut world = busy(&folder, 8);
    // So that none of it is behind the first moment.
    world.now += 60;
    let stretches = folder.disk().saved().unwrap().stretches;
    let last = usize::try_from(stretches.last().unwrap().to).unwrap();
    // The log ends with that record, or it was lost.
    for (end, loaded) in [(last, stretches.len()), (last - 1, stretches.len() - 1)] {
        world.partitions[0].log.truncate(end);
        let started = start_with(&world, Some(&folder.disk()), 0);
        assert!(started.published.is_none(), "{end}: {} loaded", started.loaded);
        assert_eq!(started.loaded, loaded, "{end}");
        assert!(same(&world, &folder.disk()).read > 0, "{end}");
    }
}

#[test]
fn what_is_behind_the_first_moment_is_read_from_the_log() {
    let folder = Folder::new();
    let mut world = busy(&folder, 5);
    start(&world, Some(&folder.disk()));
    // Seconds that are still to come for a process whose ledger is said to be less far.
    world.now -= 60;
    let started = same(&world, &folder.disk());
    assert!(started.loaded > 0 && started.read > 0);
}

#[test]
fn other_windows_need_other_buckets() {
    let folder = Folder::new();
    let mut world = busy(&folder, 6);
    world.windows = vec![super::world::window("7m")];
    assert_eq!(same(&world, &folder.disk()).loaded, 0);
}

#[test]
fn what_is_older_than_is_needed_goes_and_what_does_not_follow_begins_anew() {
    let folder = Folder::new();
    let disk = folder.disk();
    let world = busy(&folder, 7);
    start(&world, Some(&disk));
    let saved = disk.saved().unwrap();
    let stretches: Vec<Stretch> = saved.stretches.iter().map(|about| disk.stretch(about).unwrap()).collect();
    let keep = |nth: usize, is_first, needed: u64| {
        let stretch: Arc<Stretch> = Arc::new(stretches[nth].clone());
        let topic = TopicId("t0".into());
        disk.keep(&Keep { topic, bucket: saved.bucket, is_first, needed: UnixMillis(needed), stretch }).unwrap();
        (disk.saved().unwrap().stretches.len(), folder.files().len())
    };
    assert_eq!(keep(0, true, 0), (1, 2));
    assert_eq!(keep(1, false, 0), (2, 3));
    assert_eq!(keep(2, false, saved.stretches[1].until), (2, 3), "the first is not needed any more");
    assert_eq!(keep(4, false, 0), (1, 2), "it does not follow on them");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn lists_are_right_when_a_process_begins_at_any_time_with_any_damage_to_its_disk(
        deeds in proptest::collection::vec((0..10u8, 0..3u8, 0..3u8, 0..100u8), 30..120),
    ) {
        let folder = Folder::new();
        let mut world = World::keeping(folder.disk(), EVERY);
        for (subject, before, after, other) in deeds {
            let region = |n: u8| (n > 0).then_some(n);
            world.happen(subject, region(before), region(after));
            match other {
                0..60 => world.settle(u64::from(other / 8)),
                60..70 => world.again(usize::from(other)),
                70..90 => world.replace(0),
                _ => if folder.0.exists() {
                    let files = folder.files();
                    let (path, bytes) = &files[usize::from(subject) % files.len()];
                    fs::write(path, &bytes[..bytes.len() * usize::from(other - 90) / 10]).unwrap();
                },
            }
        }
        world.settle(20);
        prop_assert!(world.exact > 0);
        same(&world, &folder.disk());
    }
}
