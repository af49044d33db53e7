//! One machine's persistent ordered map: several named trees in one file or in memory.
