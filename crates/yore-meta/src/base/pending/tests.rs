use super::*;
use yore_format::ZoneNo;

/// Edges that are too many took all memory. Now the generation is to begin early, and then it does without.
#[test]
fn a_generation_with_too_many_edges_is_whole() {
    let pending = Pending::default();
    pending.start();
    let order = pending.wanted().unwrap();
    let op = order.begin(false);
    let change = || order.change(op, Did::Freed { addr: MetaAddr::new(ZoneNo(0), 1) });
    let (first, then) = (change(), change());
    for _ in 0..EDGES_MOST {
        order.edge(EdgeKind::Kept, first, then);
    }
    assert_eq!(pending.count(), EDGES_MOST / EDGES_A_CHANGE);
    for _ in 0..2 {
        order.edge(EdgeKind::Kept, first, then);
    }
    assert!(pending.count() >= EDGES_MOST / EDGES_A_CHANGE);
    let taken = pending.take().unwrap();
    assert!(taken.whole && taken.waits.edges.is_empty());
    assert_eq!(taken.waits.changes.len(), 2);
    assert_eq!(pending.count(), 0);
    // The next one has its order again.
    let (first, then) = (change(), change());
    order.edge(EdgeKind::Kept, first, then);
    let taken = pending.take().unwrap();
    assert!(!taken.whole && taken.waits.edges.len() == 1);
}
