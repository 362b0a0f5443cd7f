//! Workloads that compare Yore with other file systems in one run.
