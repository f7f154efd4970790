"""Limits without counting history: 24 h windows as minute buckets, pacing as calendars of slots."""

from sqlalchemy import ARRAY, BigInteger, CheckConstraint, Column, DateTime, Index, Integer, Table, Text

from carteiro.storage.tables.columns import metadata, one_of, uuid

capacity_meter = Table(
    "capacity_meter",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("owner", Text, primary_key=True, comment="business manager or sender"),
    Column("used", Integer, nullable=False, server_default="0", comment="units charged inside the window"),
    Column("held", Integer, nullable=False, server_default="0", comment="sum of the holds; senders hold nothing"),
    one_of("kind", "bm", "sender"),
    CheckConstraint("used >= 0 AND held >= 0", name="counts"),
    postgresql_with={"fillfactor": "50"},
)

capacity_bucket = Table(
    "capacity_bucket",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("owner", Text, primary_key=True),
    Column("bucket_at", DateTime(timezone=True), primary_key=True),
    Column("used", Integer, nullable=False),
    CheckConstraint("used >= 0", name="used"),
    postgresql_with={"fillfactor": "50"},
    comment="units of a meter by the latest instant at which their calls may be accepted",
)


capacity_hold = Table(
    "capacity_hold",
    metadata,
    uuid("batch_id", primary_key=True),
    Column("business_manager_id", Text, primary_key=True),
    Column("held", Integer, nullable=False),
    CheckConstraint("held >= 0", name="held"),
    Index(None, "business_manager_id"),
    postgresql_with={"fillfactor": "50"},
    comment="capacity reserved by a batch on one BM and not yet used",
)

pace_meter = Table(
    "pace_meter",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("owner", Text, primary_key=True),
    Column(
        "slots_us",
        ARRAY(BigInteger),
        nullable=False,
        server_default="{}",
        comment="granted instants, epoch microseconds",
    ),
    Column("counts", ARRAY(Integer), nullable=False, server_default="{}", comment="calls granted at each"),
    one_of("kind", "service", "bm", "sender"),
    postgresql_with={"fillfactor": "50"},
)
