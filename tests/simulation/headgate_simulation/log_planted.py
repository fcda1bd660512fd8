"""Bugs planted into the production code of the log, in the manner of `planted.py`, and hunted in plans with a log."""

from __future__ import annotations

from headgate_simulation.planted import Edit, Planted

_LEADS = "headgate_coordinator.catalog.log.leads"
_SEGMENTS = "headgate_coordinator.catalog.log.segments"
_REGISTRATION = "headgate_coordinator.catalog.registration"
_EDGE_RUNS = "headgate_coordinator.catalog.log.edge_runs"
_BATCHES = "headgate_agent.log.batches"
_BROKER = "headgate_agent.log.broker"
_PARTITION = "headgate_agent.log.partition"
_PUBLISHING = "headgate_agent.log.publishing"
_TAKING = "headgate_agent.log.taking"
_TRANSFER = "headgate_agent.log.transfer"
_UPKEEP = "headgate_agent.log.upkeep"
_GROUPS = "headgate_coordinator.catalog.log.groups"
_AGENT_GROUPS = "headgate_agent.groups.groups"
_MACHINE = "headgate_agent.groups.machine"
_OFFSETS = "headgate_agent.groups.offsets"
_SHELL = "headgate_agent.groups.shell"
_WAL_EDGES = "headgate_agent.log.wal_edges"
_WAL = "headgate_agent.log.wal"
_MONOTONIC, _WALL = "self._clock.monotonic()", "self._clock.wall().timestamp()"
_WAL_FORMAT = "headgate_agent.log.wal_format"

PLANTED: tuple[Planted, ...] = (
    Planted(
        "epoch not checked in a segment commit",
        "a leader of before makes its segment visible",
        (Edit(f"{_SEGMENTS}:verify", "sessions.verify_many(tx, GRANT, epochs, session)", "pass"),),
    ),
    Planted(
        "next offset not checked in a segment commit",
        "a segment becomes visible where the partition does not end, when a grant is not enough to be sure of that",
        (
            Edit(f"{_SEGMENTS}:_grow", "if segment.base_offset != growth.committed:", "if False:"),
            Edit(f"{_SEGMENTS}:verify", "sessions.verify_many(tx, GRANT, epochs, session)", "pass"),
        ),
    ),
    Planted(
        "acknowledged before the sync",
        "a leader answers when records are on their way to the disk",
        (
            Edit(
                f"{_WAL}:Wal._write_group",
                "await self._files.write(self._number, self._size, buffers)",
                "[(o.item.written(self._number), o.file.done() or o.file.set_result(self._number)) for o in group]; "
                "await self._files.write(self._number, self._size, buffers)",
            ),
        ),
    ),
    Planted(
        "grant not looked at after the durable write",
        "a leader that was paused during a write acknowledges it, though another leads by now",
        (
            Edit(f"{_PARTITION}:Partition.acknowledged", "await self.certain()", "pass"),
            Edit(f"{_BATCHES}:Batches._confirmed", "await self._access.confirm(key)", "pass"),
        ),
    ),
    Planted(
        "what may be stored is passed on again",
        "a record that its client sent once is there twice",
        (
            Edit(
                "headgate_agent.log.forwarding:Leaders._reach",
                "error.reason.name not in _AGAIN or",
                "error.reason.name not in (*_AGAIN, 'RECORDS_UNCERTAIN') or",
            ),
        ),
    ),
    Planted(
        "what was passed on without an answer is passed on again",
        "the agent that was asked did it, and its answer was late or lost",
        (
            Edit("headgate_agent.log.forwarding:Leaders.produce", "if error.reason.name in _UNANSWERED:", "if False:"),
            Edit(
                "headgate_agent.log.forwarding:Leaders._reach",
                "error.reason.name not in _AGAIN or",
                "error.reason.name not in (*_AGAIN, *_UNANSWERED) or",
            ),
        ),
    ),
    Planted(
        "what is uncertain counts as refused",
        "a leader that took records and lost its session says that it does not lead, so they seem not to be stored",
        (Edit("headgate_agent.log.refusals:_reason_of", "return RECORDS_UNCERTAIN", "return NOT_LEADER"),),
    ),
    Planted(
        "a leader does not look at its clock",
        "it serves until somebody tells it that its grant has passed on",
        (Edit(f"{_TAKING}:_Grant.valid", "return self.member.session == self.session", "return True"),),
    ),
    Planted(
        "write-ahead file removed before the commit",
        "what only the write-ahead log holds goes with its file",
        (Edit(f"{_UPKEEP}:Upkeep.free_wal", "needed.append(oldest)", "pass"),),
    ),
    Planted(
        "held files removed",
        "what a former leadership left in the write-ahead log goes with its file",
        (
            Edit(
                f"{_UPKEEP}:Upkeep.free_wal",
                "needed += [one.file for held in broker.held.values() for one in held]",
                "pass",
            ),
        ),
    ),
    Planted(
        "recovery takes a torn tail",
        "what a power failure left of a write counts as written",
        (
            Edit(
                f"{_WAL_FORMAT}:entry_at",
                "if crc32c(memoryview(data)[position + _CRC_FROM : end], _seed(number)) != crc:",
                "if False:",
            ),
        ),
    ),
    Planted(
        "what a former file left stays behind a full one",
        "recovery takes it for damage, and the agent does not start",
        (Edit(f"{_WAL}:Wal._write_group", "await self._files.cut(self._number, self._size)", "pass"),),
    ),
    Planted(
        "entries of a former file count",
        "a file that was written over another gives back what that one held",
        (
            Edit(f"{_WAL_FORMAT}:_seed", "return crc32c(_NUMBER.pack(number))", "return 0"),
            Edit(
                f"{_WAL_FORMAT}:_is_begun",
                "return data[len(_MARK) : BEGINNING_BYTES] == _NUMBER.pack(number)",
                "return True",
            ),
        ),
    ),
    Planted(
        "recovery cuts too much",
        "the last entry of the write-ahead log is taken for torn",
        (Edit(f"{_WAL}:Wal.recover", "entries.append(entry)", "good and entries.append(entry)"),),
    ),
    Planted(
        "recovered records forgotten",
        "a leader that restarts begins where segments end",
        (Edit(f"{_TAKING}:begin", "partition.recover(held)", "pass"),),
    ),
    Planted(
        "offsets of a hole used again",
        "after an accepted loss the next leader begins where segments end",
        (
            Edit(
                f"{_LEADS}:_give_up",
                "tx.connection.execute(\n            _RECOVER, ",
                "tx.connection.execute(update(partitions).where(partitions.c.key.in_([r.key for r in rows])).values("
                'reserved=partitions.c.committed, volume_id="", revision=tx.revision))\n        (',
            ),
        ),
    ),
    Planted(
        "volume not asked for",
        "any agent may lead what only the disk of another holds",
        (
            Edit(
                f"{_LEADS}:_refusal",
                "if not refusal and stranded(row) and row.volume_id != agent.volume_id:",
                "if False:",
            ),
        ),
    ),
    Planted(
        "reservations counted one by one",
        "records that are on their way together may go beyond what is reserved",
        (
            Edit(
                "headgate_agent.log.reservation:Reservation.covers",
                "next_offset + self._claimed + count",
                "next_offset + count",
            ),
        ),
    ),
    Planted(
        "producers forgotten at a take-over",
        "the next leader takes a retry for a new batch",
        (Edit(f"{_TAKING}:begin", "[producer_of(state) for state in acquired.producers]", "[]"),),
    ),
    Planted(
        "producers of the write-ahead log forgotten",
        "a leader that restarts takes a retry for a new batch",
        (Edit(f"{_PARTITION}:Partition.recover", "self._producers.restore_batch(header)", "pass"),),
    ),
    Planted(
        "producers told beyond the segment",
        "the next leader takes a batch for stored that was lost with the last one",
        (
            Edit(
                f"{_PUBLISHING}:Publishing._upload_tail",
                "self._producers.before(info.next_offset, since=info.base_offset)",
                "list(self._producers)",
            ),
        ),
    ),
    Planted(
        "hand-over without a flush",
        "the grant passes on while records are only on the disk of the former leader",
        (Edit(f"{_TRANSFER}:Transfers._hand_over", "await part.flush()", "pass"),),
    ),
    Planted(
        "records taken during a hand-over",
        "the former leader goes on taking records until the grant has passed on",
        (
            Edit(
                f"{_TRANSFER}:Transfers._hand_over",
                'part.seal(f"it is being handed over to {transfer.to_agent}")',
                "pass",
            ),
        ),
    ),
    Planted(
        "high watermark before the commit",
        "records are acknowledged and shown when the object store has them, and the catalog does not",
        (
            Edit(
                f"{_PUBLISHING}:Publishing._upload_tail",
                "await self._metadata.commit(",
                "self._advance(info.next_offset); await self._metadata.commit(",
            ),
        ),
    ),
    Planted(
        "orphans collected without a grace time",
        "an object goes while its commit is on its way",
        (Edit(f"{_UPKEEP}:Upkeep._look_at", "if now - since < self._settings.orphan_grace:", "if False:"),),
    ),
    Planted(
        "a merge leaves out a segment",
        "the one in the place of many has not all of their records",
        (Edit(f"{_UPKEEP}:Upkeep._gather", "for info in run:", "for info in run[:-1]:"),),
    ),
    Planted(
        "a failed write is not undone",
        "offsets that were given to records which a full disk refused stay given",
        (Edit(f"{_WAL}:Wal._undo", "one.item.undo()", "pass"),),
    ),
    Planted(
        "a session is inherited",
        "a process that was polled before it registers goes on in the grants of its predecessor",
        (Edit(f"{_REGISTRATION}:_session", "if session.holder == holder:", "if row.incarnation == incarnation:"),),
    ),
    Planted(
        "led while it leaves",
        "what was asked for before is taken when everything else was given back",
        (Edit(f"{_BROKER}:Broker._take", "if self.leaving:", "if False:"),),
    ),
    Planted(
        "a commit of stages forgets its batch",
        "the next leader of an edge does not know what its writer has committed",
        (Edit(f"{_EDGE_RUNS}:commit_stages", "_change(tx, after)", "pass"),),
    ),
    Planted(
        "a commit of stages in the write-ahead log forgets its batch",
        "an edge that is recovered does not know what its writer has committed",
        (
            Edit(
                f"{_WAL_EDGES}:replay",
                "found.writers[fragment] = writer",
                "found.writers[fragment] = found.writers.get(fragment, writer)",
            ),
        ),
    ),
    Planted(
        "stages are forgotten when they are recovered",
        "what a commit made visible is not there after a restart",
        (Edit(f"{_WAL_EDGES}:_replay_parts", "if stage is None:", "if True:"),),
    ),
    Planted(
        "offset commits without an order",
        "one that was given up comes after a later one, and undoes it",
        (Edit(f"{_GROUPS}:commit_group_offsets", "if 0 < request.sequence < row.sequence:", "if False:"),),
    ),
    Planted(
        "a leader that begins anew keeps its epoch",
        "what it sent before it stopped comes when it leads again, and counts",
        (
            Edit(
                f"{_LEADS}:acquire_partitions",
                "elif rows[key].epoch <= ended.get(key, 0):",
                "elif False:",
            ),
        ),
    ),
    Planted(
        "epoch not checked in an offset commit",
        "a leader of before stores the offsets of a group that another leads",
        (
            Edit(
                f"{_GROUPS}:commit_group_offsets",
                "sessions.verify(tx, GRANT, request.group, request.epoch, request.session_id)",
                "pass",
            ),
        ),
    ),
    Planted(
        "generation not checked in an offset commit",
        "a member of before stores offsets of what others read by now",
        (
            Edit(f"{_GROUPS}:commit_group_offsets", "if 0 <= request.generation < row.generation:", "if False:"),
            Edit(
                f"{_MACHINE}:GroupMachine.check_commit",
                "refusal = self._check(member_id, instance_id, generation)",
                "refusal = self._check(member_id, instance_id, self.generation)",
            ),
        ),
    ),
    Planted(
        "generations begin anew with every leader",
        "members of two leaders take themselves for members of the same generation",
        (
            Edit(f"{_SHELL}:LedGroup.__init__", "generation=offsets.grant.generation", "generation=0"),
            Edit(f"{_GROUPS}:commit_group_offsets", "if 0 <= request.generation < row.generation:", "if False:"),
        ),
    ),
    Planted(
        "members are let in before their generation is stored",
        "the next leader may give the same generation to others",
        (Edit(f"{_SHELL}:LedGroup._store", "await self.offsets.commit(generation, ())", "await asyncio.sleep(0)"),),
    ),
    Planted(
        "an offset commit is answered before it is stored",
        "it is lost with the one who answered",
        (Edit(f"{_OFFSETS}:LedOffsets.commit", "return await asyncio.shield(commit.done)", "return set()"),),
    ),
    Planted(
        "offsets of a group are forgotten at a take-over",
        "members begin anew where others have read",
        (
            Edit(
                f"{_AGENT_GROUPS}:Groups._load",
                "offsets.keep(stored.offsets if stored is not None else ())",
                "pass",
            ),
        ),
    ),
    Planted(
        "a group that falls to another agent is kept",
        "nobody can lead it: who has it should not, and who should has it not",
        (Edit(f"{_AGENT_GROUPS}:Groups.run", "if not ours or unused:", "if unused:"),),
    ),
    Planted(
        "sessions are counted on the wall clock",
        "a clock that is put forward ends the session of an agent that leads on",
        tuple(
            Edit(f"headgate_coordinator.catalog.sessions:Observer.{method}", _MONOTONIC, _WALL)
            for method in ("see", "renewed", "overdue", "is_overdue", "next_due")
        ),
    ),
    Planted(
        "a segment is as old as its first record",
        "retention takes records that are not old with others that are",
        (
            Edit(
                "headgate_agent.log.upkeep:Upkeep._expire",
                "else info.max_timestamp < oldest",
                "else info.min_timestamp < oldest",
            ),
        ),
    ),
)
