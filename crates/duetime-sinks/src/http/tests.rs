//! A webhook that answers as each test wants.
