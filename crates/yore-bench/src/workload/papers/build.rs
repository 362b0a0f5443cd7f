//! A source tree: unpacked, configured and built, or copied, looked through and built.
//!
//! No compiler runs: a script has the calls of one, so that a library can be measured with it and so that a
//! disk's time is not hidden behind a processor's. `yore bench tree` builds a real tree on mounts.

use super::scale::Scale;
use crate::workload::script::{Action, Calls, Per, Script, ROOT};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A file of the tree: its number and size.
type Sized = (u32, u64);

/// The files of a package of the size of ssh 1.2.26 (Journaling versus Soft Updates, §7.3.1): 15 directories
/// and 400 files, 6 MB, of which 150 are compiled.
struct Package {
    directories: Vec<u32>,
    sources: Vec<Sized>,
    headers: Vec<Sized>,
    others: Vec<Sized>,
}

impl Package {
    fn new(script: &mut Script, parent: u32, random: &mut StdRng) -> Package {
        let top = script.directory(parent, "package");
        let mut directories = vec![top];
        for i in 0..14 {
            // Some are below others.
            let parent = directories[i / 4];
            directories.push(script.directory(parent, format!("part{i}")));
        }
        let mut files = |count: usize, ending: &str, sizes: std::ops::Range<u64>| -> Vec<Sized> {
            let mut file = |i: usize| {
                let dir = directories[random.random_range(0..directories.len())];
                (script.file(dir, format!("{i:03}{ending}")), random.random_range(sizes.clone()))
            };
            (0..count).map(&mut file).collect()
        };
        let sources = files(150, ".c", 2_000..40_000);
        let headers = files(100, ".h", 500..12_000);
        let others = files(150, ".txt", 500..30_000);
        Package { directories, sources, headers, others }
    }

    fn all(&self) -> impl Iterator<Item = &Sized> {
        self.sources.iter().chain(&self.headers).chain(&self.others)
    }

    fn make_directories(&self, actions: &mut Vec<Action>) {
        actions.extend(self.directories.iter().map(|dir| Action::MakeDirectory(*dir)));
    }

    /// What `make` and a compiler ask for: the attributes of everything, then each source with its headers,
    /// an assembler's file that comes and goes, and an object; at the end all objects in one program.
    fn build(&self, script: &mut Script, actions: &mut Vec<Action>, random: &mut StdRng) {
        actions.extend(self.all().map(|(file, _)| Action::Stat(*file)));
        let top = self.directories[0];
        let mut objects = Vec::new();
        for (i, (source, bytes)) in self.sources.iter().enumerate() {
            actions.read_whole(*source, *bytes);
            for _ in 0..10 {
                let (header, bytes) = self.headers[random.random_range(0..self.headers.len())];
                actions.read_whole(header, bytes);
            }
            let assembler = script.file(top, format!("cc{i:04}.s"));
            actions.make(assembler, 3 * bytes);
            actions.read_whole(assembler, 3 * bytes);
            let object = script.file(top, format!("{i:04}.o"));
            actions.make(object, *bytes);
            actions.push(Action::Remove(assembler));
            objects.push((object, *bytes));
        }
        for (object, bytes) in &objects {
            actions.read_whole(*object, *bytes);
        }
        let program = script.file(top, "program");
        actions.make(program, objects.iter().map(|(_, bytes)| bytes).sum());
    }
}

/// Unpacking, configuring and building: with warm caches, one after the other, as in the paper.
pub(super) fn package(scale: &Scale) -> Script {
    let mut random = StdRng::seed_from_u64(22);
    let mut script = Script::default();
    let parents = script.make_directories("ssh", scale.of(10, 1));
    let packages: Vec<Package> =
        parents.iter().map(|parent| Package::new(&mut script, *parent, &mut random)).collect();
    let count = packages.len() as u64;
    let mut unpack = Vec::new();
    for package in &packages {
        package.make_directories(&mut unpack);
        for (file, bytes) in package.all() {
            unpack.make(*file, *bytes);
        }
    }
    script.measure("", "unpack", Per::Operations(count), unpack);
    let mut configure = Vec::new();
    for package in &packages {
        let top = package.directories[0];
        let log = script.file(top, "config.log");
        configure.push(Action::Create(log));
        for i in 0..300 {
            // A question: a program of a few lines is compiled and run, and goes away again.
            let files = ["c", "s", "o", ""].map(|ending| script.file(top, format!("conftest{i}.{ending}")));
            for (file, bytes) in files.iter().zip([400, 900, 1200, 8_000]) {
                configure.make(*file, bytes);
                configure.read_whole(*file, bytes);
            }
            configure.extend(files.map(Action::Remove));
            configure.write(log, i * 400, 400);
        }
        configure.push(Action::Close(log));
        for i in 0..20 {
            let file = script.file(top, format!("Makefile{i}"));
            configure.make(file, 20_000);
        }
    }
    script.measure("", "configure", Per::Operations(count), configure);
    let mut build = Vec::new();
    for package in &packages {
        package.build(&mut script, &mut build, &mut random);
    }
    script.measure("", "build", Per::Operations(count), build);
    script
}

/// The Andrew benchmark: directories, a copy of the sources, attributes of all, contents of all, a build.
pub(super) fn andrew(scale: &Scale) -> Script {
    let mut random = StdRng::seed_from_u64(23);
    let mut script = Script::default();
    let from = script.directory(ROOT, "original");
    let original = Package::new(&mut script, from, &mut random);
    let mut prepare = vec![Action::MakeDirectory(from)];
    original.make_directories(&mut prepare);
    for (file, bytes) in original.all() {
        prepare.make(*file, *bytes);
    }
    script.prepare(prepare);
    let parents = script.make_directories("andrew", scale.of(10, 1));
    // Names and sizes are drawn as the original's were.
    let copies: Vec<Package> = parents
        .iter()
        .map(|parent| Package::new(&mut script, *parent, &mut StdRng::seed_from_u64(23)))
        .collect();
    let count = Per::Operations(copies.len() as u64);
    let mut phase = |column: &str, each: &mut dyn FnMut(&mut Script, &mut Vec<Action>, &Package)| {
        let mut actions = Vec::new();
        for copy in &copies {
            each(&mut script, &mut actions, copy);
        }
        script.measure("", column, count, actions);
    };
    phase("directories", &mut |_, actions, copy| copy.make_directories(actions));
    phase("copy", &mut |_, actions, copy| {
        for ((from, bytes), (to, _)) in original.all().zip(copy.all()) {
            actions.read_whole(*from, *bytes);
            actions.make(*to, *bytes);
        }
    });
    phase("attributes", &mut |_, actions, copy| {
        actions.extend(copy.directories.iter().map(|dir| Action::List(*dir)));
        actions.extend(copy.all().map(|(file, _)| Action::Stat(*file)));
    });
    phase("contents", &mut |_, actions, copy| {
        for (file, bytes) in copy.all() {
            actions.read_whole(*file, *bytes);
        }
    });
    phase("build", &mut |script, actions, copy| copy.build(script, actions, &mut random));
    script
}
