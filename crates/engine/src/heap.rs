//! What the allocator keeps: memory between what is in use, which counts as the process's until it is given
//! back.
//!
//! Records beside leaves come and go by hundreds of thousands. What they leave free is not what leaves could
//! use, for these have their own ([`crate::frames`]). So where memory is short, whole pages that are free go
//! back to the system.

/// Gives whole free pages back to the system, where the allocator can be asked to: glibc's can, which keeps
/// them otherwise.
///
/// It goes through all that is free, some milliseconds for a hundred megabytes, and whoever allocates
/// meanwhile may wait.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
pub(crate) fn give_back() {
    unsafe extern "C" {
        fn malloc_trim(pad: usize) -> std::ffi::c_int;
    }
    // SAFETY: as malloc(3) has it, any thread may call it at any time; it changes nothing that is in use.
    unsafe { malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn give_back() {}
