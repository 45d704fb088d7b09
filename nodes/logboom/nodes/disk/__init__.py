"""The broker's disk: RocksDB behind the storage protocol, the data folder, and the committer."""
