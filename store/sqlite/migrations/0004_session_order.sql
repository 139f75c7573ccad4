-- The runs of a session in their order, across its epochs.
CREATE INDEX runs_by_session_ord ON runs (session, ord) WHERE ord > 0;
