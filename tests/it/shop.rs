//! The shop of the examples in Rust; those in other languages are run by `clients/test`.

use std::path::Path;
use std::time::Duration;

use tokio::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");

/// Far more than its orders take.
const PATIENCE: Duration = Duration::from_secs(120);

#[tokio::test]
async fn the_shop_in_axum_closes_what_is_not_paid_and_believes_no_stranger() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    // Cargo builds the examples of a package with its tests.
    let shop = Path::new(PROGRAM).with_file_name("examples").join("axum-shop");
    let python = std::env::var("DUETIME_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut rig = Command::new(python);
    rig.arg(root.join("clients/rig/shops.py")).arg(root.join("examples/axum")).arg(shop);
    let ran = rig.env("DUETIME_BIN", PROGRAM).kill_on_drop(true).output();
    let ran = tokio::time::timeout(PATIENCE, ran).await.expect("the shop's orders do not end").unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}
