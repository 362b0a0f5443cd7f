//! Promises that docs/CHECK.md lists every code, with its class and whether it is a leak.

use yore_check::Problem;

/// The list of codes.
fn findings() -> &'static str {
    let page = include_str!("../../../docs/CHECK.md");
    let (_, rest) = page.split_once("\n## Findings\n").expect("the section");
    rest.split_once("\n## ").expect("the next section").0
}

#[test]
fn every_code_is_listed() {
    let page = findings();
    for problem in Problem::ALL {
        let text = |value: serde_json::Value| value.as_str().unwrap().to_string();
        let code = text(serde_json::to_value(problem).unwrap());
        let class = text(serde_json::to_value(problem.class()).unwrap());
        let severity = if problem.is_leak() { "leak" } else { "damage" };
        assert_eq!(problem.code(), code);
        let row = format!("| `{code}` | {class} | {severity} | ");
        assert_eq!(page.matches(&row).count(), 1, "{row}");
    }
    // Other tables name codes, too.
    let is_of_codes = |line: &&str| {
        line.contains("` | ") && [" | damage | ", " | leak | "].iter().any(|s| line.contains(s))
    };
    let rows = page.lines().filter(is_of_codes).count();
    assert_eq!(rows, Problem::ALL.len(), "rows of codes that there are not");
}

/// Promises that the page says what a repair does about each code, in the words of the rule.
#[test]
fn every_repair_is_listed() {
    let page = findings();
    for problem in Problem::ALL {
        let code = serde_json::to_value(problem).unwrap();
        let class = serde_json::to_value(problem.class()).unwrap();
        let start = format!("| `{}` | {} | ", code.as_str().unwrap(), class.as_str().unwrap());
        let end = format!("| {} |", yore_check::repair_of(*problem).unwrap_or("none yet"));
        let row = page.lines().find(|line| line.starts_with(&start)).unwrap();
        assert!(row.ends_with(&end), "{row}: {end}");
    }
}

/// Promises that the page argues for each problem why it cannot be there if the fast pass has no doubt.
#[test]
fn the_fast_pass_is_argued_for_each_problem() {
    let page = include_str!("../../../docs/CHECK.md");
    let (_, rest) = page.split_once("### Why no doubt means no finding").expect("the section");
    let (section, _) = rest.split_once("## Memory").expect("the next section");
    for problem in Problem::ALL {
        let code = serde_json::to_value(problem).unwrap();
        let code = format!("`{}`", code.as_str().unwrap());
        assert_eq!(section.matches(&code).count(), 1, "{code}");
    }
}
