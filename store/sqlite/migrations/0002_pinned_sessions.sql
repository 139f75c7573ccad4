-- What a new version of an agent leaves behind: the conversations that are pinned to an older one are counted at each save.
CREATE INDEX sessions_pinned ON sessions (environment, agent) WHERE json_extract(body, '$.agentVersion') <> 0;
