"""The broker's disk: the protocol that cores see, RocksDB behind it, and its data folder."""
