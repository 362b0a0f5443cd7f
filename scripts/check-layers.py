#!/usr/bin/env python3
"""Holds the code to the layers of the architecture.

1. Between crates: only the edges of the table below (docs/DESIGN.md has the picture).
   Tests may also use what their crate reaches by these edges over others (a test of the mount makes a device), and
   crates whose tests wire whole systems together may use nearly anything.
2. Inside crates: each has a table in LAYERS with all of its modules, each module refers only to modules of lower levels, and
   there is no ring. Methods count: who calls a method that another module adds to a type refers to that module. Tests are exempt, as
   the compiler leaves them out: `#[cfg(test)] mod tests`, in a file of its own or not.
3. Where the tests of a crate are one program, tests/all.rs, it has each file beside it.

`check-layers.py --self-test` proves on made-up input that all kinds of breach are seen; `--edges CRATE` prints the picture
of a crate.
"""
import json
import os
import re
import subprocess
import sys

ALL = {
    "yore-format", "yore-device", "yore-log", "yore-meta", "yore-core", "yore-fs",
    "yore-check", "yore-online", "yore-control", "yore-fuse", "yore-cli", "yore-bench", "yore-crash", "yore-faults",
}
EDGES = {
    "yore-format": set(),
    "yore-device": set(),
    "yore-log": {"yore-device"},
    "yore-meta": {"yore-format", "yore-device", "yore-log"},
    "yore-core": {"yore-meta", "yore-device", "yore-format"},
    "yore-fs": {"yore-core", "yore-meta", "yore-device", "yore-format"},
    "yore-check": {"yore-format", "yore-device", "yore-meta"},
    # A check of a volume that is in use: the checker reads, and the file system puts right what it can meanwhile.
    "yore-online": {"yore-fs", "yore-check", "yore-device"},
    # What commands ask of a volume. The daemon answers it, and commands ask the daemon or the library.
    "yore-control": {"yore-fs", "yore-online", "yore-check"},
    "yore-fuse": {"yore-fs", "yore-control"},
    "yore-cli": ALL - {"yore-crash", "yore-faults"},
    # Plants what a check is to find, and scatters zones, by the format's own definitions.
    "yore-bench": {
        "yore-fs", "yore-control", "yore-fuse", "yore-online", "yore-check", "yore-device", "yore-format",
    },
    # The edge judge puts sets of changes on a medium, by the format's own definitions. What a crash left is recounted.
    "yore-crash": {"yore-fs", "yore-check", "yore-online", "yore-device", "yore-format"},
    # Damages media by the format's own definitions, and feeds them to whoever reads them.
    "yore-faults": {"yore-fs", "yore-check", "yore-device", "yore-format", "yore-log"},
}
# Their tests may use any part, but no test uses one of these. (Only the command line starts benchmarks.)
FREE_TESTS = NEVER_USED = {"yore-bench", "yore-crash", "yore-faults", "yore-cli"}

# Levels inside crates, from the lowest to the highest, a line each. A name is the path of one module below src; `name/*` is
# that module and all below it, which count as one; `lib`, or `main` if there is none, is the root of the crate. A module
# refers to lower levels only, not to others of its own. Every crate has its table: folders as layers.
LAYERS = {
    "yore-format": """
        units travel tables features
        ids
        error layout
        tagged touched varint header
        group_tables
        bitmap inode node zone
        cells policy
        history/trees
        history/annals/keys history/annals/row
        history/annals/encode
        history/annals/decode
        history/annals
        history/keys history/more history/rollback history/version history/past_name superblock/fields
        history/event history/operations history/span_hint superblock/raw
        history/roots
        history/short_event
        history superblock/slot
        superblock
        findings intent verify
        scrubs spare
        structures
        lib
    """,
    "yore-device": """
        block host_error mounts platters travel
        error pool
        buffer
        device
        file/failure file/host memory overlay part runs simulated/state
        wrapped
        file/lock file/ring
        file/device
        file/open
        file simulated/crash simulated/fault simulated/trace
        simulated/states
        simulated
        lib
    """,
    "yore-log": """
        mutation types
        layout
        error
        ring
        recover
        log search
        read
        file
        kept reader
        lib
    """,
    "yore-check": """
        pace/with_past
        error finding inline key pace varint words proof/keyed
        proof/doubt
        proof/claim
        spill/*
        claims deaths versions
        known
        chain held overlay superblock proof/node proof/past proof/places
        settle proof/ground proof/packed
        proof/summary
        proof/digest
        proof/leaves proof/trees
        proof/blocks
        scan
        report
        checker
        jobs space tree
        shared
        follow
        walk
        history/walk state
        extents history/index xattrs
        history/events history/hint history/operations history/policies history/versions
        history/names
        history/annals
        directory history inodes links unreached zones
        redo
        content
        states paths proof/twice
        proof/with_past
        proof
        estimate
        whole
        repair/undo repair/volume
        repair/found repair/round repair/tree
        repair/facts
        repair/shorten repair/superblocks
        repair/names
        repair/past
        repair/content
        repair/log
        repair/owners
        repair/rows repair/zones
        repair/rules
        repair
        lib
    """,
    "yore-core": """
        clock error locks memo met retained testing
        alloc/* btree/*
        pages/*
        extent/* inode
        datacache/* orphan
        lib
    """,
    "yore-fs": """
        api/block_set go_on idle machine progress recounts time/* travel
        types
        file/*
        history/gate
        history/record/*
        store history/reclaim/retention
        history/reclaim/whose
        dir/* symlink
        history/exclude
        history/versioning
        history/preserve
        xattr/*
        ops/* history/read/at_time/* history/reclaim/alone
        history/reclaim/rows
        history/reclaim/unended
        api/view/* history/reclaim/needed history/reclaim/references
        history/reclaim/seers
        history/reclaim/spans
        history/reclaim/spans/hint
        history/pin history/read/access history/read/query/* history/reclaim/expunge/*
        history/reclaim/forget
        history/reclaim/room/* history/reclaim/shred
        api/room
        history/policy/place
        history/policy
        api/copy
        api/online api/opened api/past api/present api/recorded api/recount
        api/recount/names
        api history/read/listing history/read/usage/* history/rollback/*
        history history/read history/reclaim
        api/inodes
        api/checksums
        api/defrag api/scrub api/shrink api/together api/verify history/done
        api/open
        api/volume/*
        lib
    """,
    "yore-meta": """
        engine/strategy error findings mutation
        engine/journal engine/none engine/ordered engine/snapshot
        engine
        base/late base/units
        base/order base/shadow
        base/waits
        base/index
        base/pending base/recorder
        base/orders
        base/medium base/ledger base/features base/freed base/left base/gate base/limits base/progress
        base cache
        zones/slots zones/header zones/zone
        zones/apart zones/reserve zones/settle zones/table zones/tables
        zones
        blocks
        log/region log/notes log/opened space
        log/place
        log/elsewhere log/intent log/replay
        log/moving
        mkfs
        log rooms
        op/* writer/along writer/gather writer/beside writer/ceilings writer/files writer/room
        writer/rounds
        writer/passing
        writer/generation
        writer/part
        writer
        meta/*
        lib
    """,
    "yore-bench": """
        error memory report/machine simulated/model stats
        program report simulated/device simulated/scattered target/interface workload/steps
        report/html report/markdown rival/kind simulated target/library target/system
        rival/host target
        rival/state
        rival/library rival/system
        rival/served
        rival
        compare workload/lines workload/mechanism workload/papers/scale workload/script
        workload/history/run workload/history/volume workload/latency workload/micro workload/player workload/postmark
        workload/computed workload/resident workload/startup workload/stream workload/tree
        workload/history/back workload/history/changes workload/history/forget workload/history/large
        workload/history/live workload/history/mail workload/history/months workload/history/mounted
        workload/history/recorded workload/history/restored workload/history/scattered workload/history/takes
        workload/papers/build workload/papers/curves workload/papers/dbench workload/papers/many workload/papers/mixes
        workload/papers/news workload/papers/shell workload/papers/streams workload/simulated
        workload/papers/experiment
        workload/papers/measured workload/papers/reported workload/papers/simulated
        workload/papers
        workload/checks/ageing workload/checks/checker workload/checks/recorded workload/waited
        workload/checks/run workload/checks/whole
        workload/checks/checksums workload/checks/claims workload/checks/data workload/checks/layout
        workload/checks/live workload/checks/memory workload/checks/slow
        workload/checks/past
        workload/checks
        workload/history/beside workload/history/cold workload/history/mixed workload/history/usual
        workload/history
        workload
        lib
    """,
    "yore-online": """
        check
        beside
        lib
    """,
    "yore-control": """
        message/expunge message/query message/policy server/names server/told
        message
        client/watched wire
        client/methods ongoing server/rows
        client/mounted client/until server/who
        server/long server/pins
        server/check server/expunge server/query server/policies server/rollback server/snapshots
        server
        client/here
        client
        lib
    """,
    "yore-fuse": """
        config convert errno error mapped/tables past privilege snapdir
        mapped/patient
        mapped mountpoint notices process_pins serve/opened tuning
        attach connection serve/refused serve/rollback serve/syncs serve/waiting serve/writers
        serve/flushers serve/saves stores
        serve/server
        serve/background serve/behalf serve/fsync serve/gone serve/nodes
        serve/asked serve/attributes serve/snapshots serve/writing
        serve/flags serve/listings serve/ranges serve/xattrs
        serve
        session
        lib
    """,
    "yore-crash": """
        edges/units model/data mutant op volume
        edges/sets
        edges/state
        op/brief outcome trial
        model systematic
        model/expect tree
        model/attributes model/found model/names past/taken subject/interface subject/walk together/lens
        judge model/apply subject/model subject/view
        judge/held edges/synced
        judge/ordered
        marks subject
        fill generate past recount runner stalled
        case recorded threads
        compare edges/calls edges/effect together
        edges record
        crash edges/crashes
        campaign
        totals
        lib
        bin/yore-crash
    """,
    "yore-faults": """
        chance survey watch
        damage sample
        exercise workload/step
        workload/model
        workload/observe
        workload/history
        workload
        targets
        lib
    """,
    "yore-cli": """
        allocator glob opened output/safe parse timed_path
        args/* live/*
        output side/lineage
        nearest side
        side/anchored
        command/copy/overlap content status
        asked inspect/superblock progress
        volume
        ground
        inspect/* command/check command/copy command/found command/resize command/stopped command/target
        command/bench command/df command/files command/info command/journal command/log_service command/man fsck
        command/find command/list command/snapshot mount/*
        command/online command/operand
        command/defrag command/scrub command/forget command/history command/operations command/policy complete
        command/describe command/expunge command/query/* command/mkfs
        command/put_back/*
        command
        main
    """,
}

def below(name):
    """All crates that a crate reaches over the table's edges."""
    reached, ways = set(), list(EDGES[name])
    while ways:
        crate = ways.pop()
        if crate not in reached:
            reached.add(crate)
            ways.extend(EDGES[crate])
    return reached


def crate_breaches(packages):
    """Edges that are not in the table. packages: [(name, [(dependency, kind)])]"""
    for name, dependencies in packages:
        if name not in EDGES:
            yield f"{name}: a crate the architecture does not know; add it to scripts/check-layers.py and to the docs"
            continue
        for dependency, kind in dependencies:
            if dependency not in ALL:
                continue
            if dependency in EDGES[name]:
                continue
            if kind == "dev" and dependency in below(name):
                continue
            if kind == "dev" and name in FREE_TESTS and dependency not in NEVER_USED:
                continue
            yield f"{name} -> {dependency}{' (in tests)' if kind == 'dev' else ''}: not an edge of the architecture"


def crates_without_table(packages):
    """Crates whose modules nobody would look at. packages: as above."""
    for name, _ in packages:
        if name not in LAYERS:
            yield f"{name}: a crate without levels; give it a table in LAYERS in scripts/check-layers.py"


def without_comments_and_strings(source):
    """The code, with comments and string contents blanked and line numbers kept."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"', re.S)
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), source)


TEST_MODULE = re.compile(r"#\[cfg\(test\)\]\s*(?:pub(?:\([a-z ]+\))?\s+)?mod\s+([a-z_]+)\s*(\{|;)")


def without_test_modules(source):
    """The code without comments and strings, `#[cfg(test)] mod name { ... }` blanked too; line numbers are kept."""
    source = without_comments_and_strings(source)
    while match := next((m for m in TEST_MODULE.finditer(source) if m.group(2) == "{"), None):
        level, at = 1, match.end()
        while level and at < len(source):
            level += {"{": 1, "}": -1}.get(source[at], 0)
            at += 1
        blank = re.sub(r"[^\n]", " ", source[match.start() : at])
        source = source[: match.start()] + blank + source[at:]
    return source


def test_modules(files):
    """Paths, without `.rs`, of the modules in files of their own that only tests have."""
    found = set()
    for path, source in files:
        home = path.removesuffix(".rs").removesuffix("mod").rstrip("/")
        home = "" if home == "lib" else home + "/"
        for match in TEST_MODULE.finditer(without_comments_and_strings(source)):
            if match.group(2) == ";":
                found.add(home + match.group(1))
    return found


class Layers:
    """The levels of a table of LAYERS."""

    def __init__(self, table):
        lines = [line.split() for line in table.strip().splitlines()]
        self.levels = {name: level for level, names in enumerate(lines) for name in names}

    def entry(self, module):
        """The name in the table that a module belongs to; None if the table does not know it."""
        if module in self.levels:
            return module
        parts = module.split("/")
        folders = ("/".join(parts[:n]) + "/*" for n in range(len(parts), 0, -1))
        return next((folder for folder in folders if folder in self.levels), None)


def module_of(path):
    """The name of the module in a file below src."""
    return path.removesuffix(".rs").removesuffix("/mod")


def product_modules(files):
    """Modules that are not only for tests: {name: source without comments, strings and tests}."""
    tests = test_modules(files)
    modules = {}
    for path, source in files:
        parts = path.removesuffix(".rs").removesuffix("/mod").split("/")
        if not any("/".join(parts[: n + 1]) in tests for n in range(len(parts))):
            modules[module_of(path)] = without_test_modules(source)
    return modules


def use_tree(source, at):
    """The paths that begin at `at`, as lists of segments, with braces taken apart."""
    path = []
    while match := re.compile(r"\s*([A-Za-z_][A-Za-z_0-9]*|\{|\*)").match(source, at):
        at = match.end()
        if match.group(1) == "{":
            paths, level, start = [], 1, at
            while level and at < len(source):
                char = source[at]
                level += {"{": 1, "}": -1}.get(char, 0)
                if level == 0 or (level == 1 and char == ","):
                    paths += [path + tail for tail in use_tree(source[:at], start)]
                    start = at + 1
                at += 1
            return paths
        path.append(match.group(1))
        colons = re.compile(r"\s*::").match(source, at)
        if not colons:
            break
        at = colons.end()
    return [path] if path else []


def shown_by_root(root, modules):
    """What the root of a crate has with `pub use`, by name: the module that it is in; None if that is another crate's."""
    if root not in modules:
        return {}
    shown = {}
    for match in re.finditer(r"\bpub(?:\s*\([^)]*\))?\s+use\s+", modules[root]):
        for path in use_tree(modules[root], match.end()):
            at = []
            for segment in path:
                if segment != "crate" and "/".join(at + [segment]) in modules:
                    at = at + [segment]
            shown[path[-1]] = at or None
    return shown


def path_edges(name, modules):
    """Modules that the paths in a module lead to: [(line, module)]."""
    source = re.sub(r"\bpub\s*\([^)]*\)", lambda m: " " * len(m.group()), modules[name])
    root = "lib" if "lib" in modules else "main"
    home = [] if name == root else name.split("/")
    children = re.findall(r"\bmod\s+([a-z_0-9]+)\s*;", source)
    shown = {} if name == root else shown_by_root(root, modules)
    starts = "|".join(["crate", "super", "self"] + children)
    for match in re.finditer(rf"(?<![\w:])(?:{starts})\s*::", source):
        line = source.count("\n", 0, match.start()) + 1
        for path in use_tree(source, match.start()):
            at = [] if path[0] == "crate" else home
            for segment in path:
                if segment == "super":
                    at = at[:-1]
                elif segment not in ("crate", "self"):
                    if "/".join(at + [segment]) not in modules:
                        # What the root has from below is below; what it has from elsewhere is no module of this crate.
                        at = shown.get(segment, at) if not at else at
                        break
                    at = at + [segment]
            if at is not None:
                yield line, "/".join(at) or root


def added_methods(modules):
    """Methods that modules add to types of others: [(type, its module, method, module that adds it)]."""
    home, own = {}, {}
    for module, source in modules.items():
        own[module] = set(re.findall(r"\b(?:struct|enum|union)\s+([A-Za-z_0-9]+)", source))
        for name in own[module]:
            home.setdefault(name, module)
    for module, source in modules.items():
        for match in re.finditer(r"^impl(?:<[^{]*?>)?\s+(?:\w+::)*(\w+)(?:<[^{]*>)?\s*\{(.*?)^\}", source, re.M | re.S):
            # Two modules may each have a type of this name.
            owner = module if match.group(1) in own[module] else home.get(match.group(1))
            if owner not in (None, module):
                for method in re.findall(r"\bfn\s+([a-z_0-9]+)", match.group(2)):
                    yield match.group(1), owner, method, module


def types_with(modules):
    """The types that have a method, by its name."""
    types = {}
    for source in modules.values():
        for match in re.finditer(r"^impl(?:<[^{]*?>)?\s+(?:[\w:<>', ]+\s+for\s+)?(?:\w+::)*(\w+)(?:<[^{]*>)?\s*\{(.*?)^\}", source, re.M | re.S):
            for method in re.findall(r"\bfn\s+([a-z_0-9]+)", match.group(2)):
                types.setdefault(method, set()).add(match.group(1))
    return types


def public_methods(files):
    """The names of the methods that a crate shows to others."""
    return {name for _, source in files for name in re.findall(r"^ +pub fn ([a-z_0-9]+)", source, re.M)}


def layer_edges(files, outside=()):
    """All references between modules of a crate: {(module, line, module referred to)}. outside: names of methods of other crates."""
    return set(references_of(product_modules(files), outside))


def references_of(modules, outside):
    """The references, one by one."""
    for module in modules:
        for line, to in path_edges(module, modules):
            if to != module:
                yield module, line, to
    added, having = {}, types_with(modules)
    for type_name, owner, method, adds in added_methods(modules):
        # A name that methods of other types have, too, does not say whose it is.
        if len(having[method]) > 1 or method in outside:
            continue
        added.setdefault((type_name, owner), {}).setdefault(method, set()).add(adds)
    for (type_name, owner), methods in added.items():
        names = "|".join(methods)
        calls = re.compile(rf"(?:\.|\b(Self|{type_name})::)({names})\b(\s*(?:\(|::<))?")
        for module, source in modules.items():
            if module != owner and not re.search(rf"\b{type_name}\b", source):
                continue
            # `.method(`, and `Type::method` with or without a call.
            for match in calls.finditer(source):
                if match.group(1) or match.group(3):
                    line = source.count("\n", 0, match.start()) + 1
                    yield from ((module, line, adds) for adds in methods[match.group(2)] - {module})


def rings(edges):
    """Groups of modules that reach each other, from pairs."""
    ways = {}
    for a, b in edges:
        ways.setdefault(a, set()).add(b)

    def reach(start):
        reached, todo = set(), [start]
        while todo:
            for to in ways.get(todo.pop(), ()):
                if to not in reached:
                    reached.add(to)
                    todo.append(to)
        return reached

    reached = {module: reach(module) for module in ways}
    found = {frozenset(b for b in reached[a] if a in reached.get(b, ())) for a in ways if a in reached[a]}
    return sorted(sorted(ring) for ring in found)


def layer_breaches(crate, files, table, outside=()):
    """Modules that the table does not know, references that do not lead down, and rings."""
    layers = Layers(table)
    known = product_modules(files)
    for module in sorted(known):
        if layers.entry(module) is None:
            yield f"{crate}/src/{module}: a module without a level; add it to LAYERS in scripts/check-layers.py"
    for name in layers.levels:
        if not any(layers.entry(module) == name for module in known):
            yield f"{crate}/src/{name}: in LAYERS, and not there"
    edges = set()
    for module, line, to in sorted(layer_edges(files, outside)):
        edges.add((module, to))
        own, other = layers.entry(module), layers.entry(to)
        if own is None or other is None or own == other:
            continue
        if layers.levels[other] >= layers.levels[own]:
            yield f"{crate}/src/{module}:{line}: {own} refers to {other}, which is not below it"
    for ring in rings(edges):
        yield f"{crate}: a ring of modules: {', '.join(ring)}"


def print_edges(crate, files, table, outside):
    """Prints who refers to whom, with the numbers."""
    layers = Layers(table)
    edges = {(module, to) for module, _, to in layer_edges(files, outside)}
    level = {module: layers.levels.get(layers.entry(module), -1) for module in product_modules(files)}
    for module in sorted(level, key=lambda module: (level[module], module)):
        print(f"{level[module]:3} {module} -> {' '.join(sorted(to for a, to in edges if a == module))}")
    up = sum(level[a] < level[b] for a, b in edges)
    print(f"{crate}: {len(level)} modules, {len(edges)} edges, {up} upwards, {len(rings(edges))} rings")


def self_test_layers():
    table = """
        error
        low/a low/b
        low
        high/*
        lib
    """
    files = [
        ("lib.rs", "mod error; mod low; mod high; mod new;\npub use error::E; pub use high::High; pub use other::O;"),
        ("error.rs", "pub struct E;\n// use crate::low;\nconst S: &str = \"crate::high\";"),
        ("low/mod.rs", "pub(crate) mod a; pub(in crate::high) mod b;\nuse a::A;\nstruct Low;"),
        ("low/a.rs", "use crate::{error::E, low::{self, b::{B, C}}};\nfn f() -> crate::High {}\npub struct A;"),
        ("low/b.rs", "use super::super::high::High; use crate::{E, O};\n#[cfg(test)]\nmod tests { use crate::high::x; }\nfn g(a: A) { a.add() }"),
        ("high/mod.rs", "mod x;\nuse crate::low::a::A;\npub struct High; impl High { fn f(&self) { self.added() } }"),
        # A method that is added to a type of another module is an edge for those who call it.
        ("high/x.rs", "use super::High;\nimpl High {\n    fn added(&self) {}\n}\nimpl A {\n    fn add(&self) {}\n}"),
        ("new.rs", "fn f() {}"),
    ]
    found = sorted(layer_breaches("crate", files, table))
    expected = [
        "crate/src/low/a:1: low/a refers to low,",
        "crate/src/low/a:1: low/a refers to low/b,",
        "crate/src/low/a:2: low/a refers to high/*,",
        "crate/src/low/b:1: low/b refers to high/*,",
        "crate/src/low/b:4: low/b refers to high/*,",
        "crate/src/new: a module without a level",
        "crate: a ring of modules: high, high/x, low, low/a, low/b",
    ]
    assert len(found) == len(expected), found
    assert all(breach.startswith(start) for breach, start in zip(found, expected)), found
    assert public_methods([("lib.rs", "impl A {\n    pub fn add(&self) {}\n    fn own(&self) {}\n}")]) == {"add"}
    found = list(layer_breaches("crate", files, table, outside={"add"}))
    assert len(found) == len(expected) - 1 and not any("low/b:4" in breach for breach in found), found
    gone = list(layer_breaches("crate", [("lib.rs", ""), ("error.rs", "")], "error old\nlib"))
    assert gone == ["crate/src/old: in LAYERS, and not there"], gone
    ring = [("a/mod.rs", "mod b; use b::B; pub struct A;"), ("a/b.rs", "use super::A; pub struct B;")]
    assert list(layer_breaches("crate", ring, "a/*")) == ["crate: a ring of modules: a, a/b"]
    assert list(layer_breaches("crate", ring[:1] + [("a/b.rs", "pub struct B;")], "a/*")) == []


def tests_left_out(name, files, roots, root_source):
    """Files beside tests/all.rs that no program of the crate has. files, roots: names of files in tests/."""
    for file in files:
        if file not in roots and not re.search(rf"^mod {file.removesuffix('.rs')};$", root_source, re.M):
            yield f"{name}/tests/{file}: nobody runs it; name it in tests/all.rs"


def tests_of(root, package):
    """What `tests_left_out` wants to know of a package; no files if it has no tests/all.rs."""
    home = os.path.join(root, "crates", package["name"], "tests")
    if not os.path.exists(os.path.join(home, "all.rs")):
        return package["name"], [], set(), ""
    with open(os.path.join(home, "all.rs"), encoding="utf-8") as file:
        source = file.read()
    roots = {os.path.basename(target["src_path"]) for target in package["targets"] if "test" in target["kind"]}
    files = sorted(name for name in os.listdir(home) if name.endswith(".rs"))
    return package["name"], files, roots, source


def self_test():
    self_test_layers()
    left = list(tests_left_out("yore-x", ["a.rs", "all.rs", "b.rs", "c.rs"], {"all.rs", "b.rs"}, "mod a;\nmod cc;\n"))
    assert [one.split(":")[0] for one in left] == ["yore-x/tests/c.rs"], left
    packages = [
        ("yore-check", [("yore-fs", None), ("yore-meta", None)]),
        ("yore-crash", [("yore-meta", "dev"), ("yore-bench", "dev")]),
        ("yore-new", []),
        ("yore-fuse", [("yore-device", "dev"), ("yore-device", None)]),
        ("yore-log", [("yore-check", "dev")]),
    ]
    expected = {
        "yore-check -> yore-fs", "yore-crash -> yore-bench (in tests)", "yore-new",
        "yore-fuse -> yore-device", "yore-log -> yore-check (in tests)",
    }
    found = [breach.split(":")[0] for breach in crate_breaches(packages)]
    assert len(found) == len(expected) and set(found) == expected, found
    found = [breach.split(":")[0] for breach in crates_without_table(packages)]
    assert found == ["yore-new"], found
    print("check-layers: self-test ok")


def sources(root, crate):
    """The source files of a crate: [(path below src, source)]."""
    home, files = os.path.join(root, "crates", crate, "src"), []
    for directory, _, names in os.walk(home):
        for name in sorted(names):
            if name.endswith(".rs"):
                path = os.path.join(directory, name)
                with open(path, encoding="utf-8") as file:
                    files.append((os.path.relpath(path, home), file.read()))
    return files


def methods_below(root, crate):
    """The names of the methods of the crates that a crate uses."""
    return set().union(*(public_methods(sources(root, used)) for used in EDGES[crate]))


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    if sys.argv[1:2] == ["--edges"]:
        crate = sys.argv[2]
        return print_edges(crate, sources(root, crate), LAYERS[crate], methods_below(root, crate))
    metadata = json.loads(
        subprocess.run(
            ["cargo", "metadata", "--format-version", "1", "--no-deps", "--locked"],
            cwd=root, check=True, stdout=subprocess.PIPE,
        ).stdout
    )
    packages = [
        (package["name"], [(dependency["name"], dependency["kind"]) for dependency in package["dependencies"]])
        for package in metadata["packages"]
    ]
    breaches = sorted(crate_breaches(packages)) + sorted(crates_without_table(packages))
    for package in metadata["packages"]:
        breaches += tests_left_out(*tests_of(root, package))
    for crate, table in LAYERS.items():
        breaches += sorted(layer_breaches(crate, sources(root, crate), table, methods_below(root, crate)))
    for breach in breaches:
        print(f"check-layers: {breach}", file=sys.stderr)
    if breaches:
        sys.exit(1)
    print(f"check-layers: {len(packages)} crates and all their modules keep to the layers")


if __name__ == "__main__":
    self_test() if sys.argv[1:] == ["--self-test"] else main()
