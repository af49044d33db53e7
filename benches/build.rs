//! Links the rivals that are system libraries, if the features select them.

fn main() {
    println!("cargo:rerun-if-changed=peers/berkeley.c");
    #[cfg(feature = "kyoto")]
    println!("cargo:rustc-link-lib=kyotocabinet");
    #[cfg(feature = "berkeley")]
    {
        cc::Build::new().file("peers/berkeley.c").warnings_into_errors(true).compile("atoll_berkeley");
        println!("cargo:rustc-link-lib=db");
    }
}
