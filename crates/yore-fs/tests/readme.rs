//! Promises that the README's library example works exactly as it is printed there.

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[rustfmt::skip]
fn example() -> Outcome {
    // The example begins.
    use std::sync::Arc;
    use yore_device::{Device, MemoryDevice};
    use yore_fs::{MkfsOptions, Volume};

    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(32 << 20));
    let volume = Volume::create(device, &MkfsOptions::default())?;
    volume.create_dir("letters")?;
    volume.write("letters/first", "Dear reader")?;
    volume.rename("letters/first", "letters/sent")?;
    volume.sync()?; // durable from here on
    volume.close()?;
    // The example ends.
    Ok(())
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

fn between<'t>(text: &'t str, begin: &str, end: &str) -> &'t str {
    let (_, rest) = text.split_once(begin).unwrap_or_else(|| panic!("{begin:?} is not there"));
    rest.split_once(end).unwrap_or_else(|| panic!("{end:?} is not there")).0
}

#[test]
fn the_example_works_as_printed() {
    example().unwrap();
    let readme = include_str!("../../../README.md");
    let own = include_str!("readme.rs");
    let printed = between(readme, "```rust\n", "```");
    let run = between(own, "// The example begins.\n", "// The example ends.");
    assert_eq!(lines(printed), lines(run), "README.md, \"As a library\"");
}
