//! Memory that the allocator keeps free between allocations, which counts as the process's until it is given
//! back.
//!
//! Records beside leaves come and go by the hundreds of thousands. Leaves cannot use what they leave free,
//! because leaves have memory of their own ([`crate::frames`]). So where memory is short, whole free pages go
//! back to the system.

/// Gives whole free pages back to the system, if the allocator supports it: glibc's does, and keeps them
/// otherwise.
///
/// It goes through all free memory, which takes some milliseconds for a hundred megabytes; other threads that
/// allocate meanwhile may wait.
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
