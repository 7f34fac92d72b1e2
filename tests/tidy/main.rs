//! Rules of the repository that a machine keeps.
