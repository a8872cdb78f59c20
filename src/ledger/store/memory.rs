//! In memory, with faults on demand: for simulation and tests.
