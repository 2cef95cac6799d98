---------------------------- MODULE DirectCommit ----------------------------
(***************************************************************************)
(* One destination lake at the grain of its catalog and its object store:  *)
(* snapshots with numbers, file rows, and the files themselves.            *)
(*                                                                         *)
(* An applier commits by one of two paths.  The direct path looks, writes  *)
(* files, and sends one batch that holds only if nothing was committed     *)
(* since the look; nothing is open between these steps.  The path of the   *)
(* extension holds a transaction open, as Viaduck.tla has it.  The owner   *)
(* of the lake writes other tables, compacts, expires and sweeps.          *)
(*                                                                         *)
(* Viaduck.tla has the system around a lake.  For it, a direct commit is   *)
(* MoveCursor, CheckDeadline, SendCommit and Commit in one step; README.md *)
(* says why, and StepsAreFenced checks it.                                 *)
(***************************************************************************)
EXTENDS Fence, FiniteSets

CONSTANTS
    Appliers,
    Paths,          \* by which paths changes are committed: "direct", "extension"; seeds may always go by the extension
    Begins,         \* how the lake is at first: "seeded", or "empty", without the destination's tables
    Head,           \* the source's newest snapshot
    MaxGeneration,
    MaxSnapshot,    \* the largest snapshot number of the lake
    MaxName,        \* how many file names are used
    Faults,         \* which of "crash", "cut", "elsewhere", "compact", "expire", "sweep" happen
    Mutant          \* "none", or the one mistake that is planted

VARIABLES
    snapshots,  \* ducklake_snapshot: the retained snapshots by number
    cursors,    \* rows of the destination's cursor table, with the snapshots that show them
    files,      \* ducklake_data_file, of the destination's table
    deletes,    \* ducklake_delete_file, of the destination's table
    others,     \* files of other tables of the lake, which the owner has committed
    store,      \* names of files that the object store holds
    named,      \* how many names are used: every name is fresh
    batches,    \* batches that were sent to the catalog and have not ended
    job,        \* what each applier has in hand
    removed,    \* history: names that appliers removed
    swept,      \* history: names that the owner removed though no expiry had released them
    abandoned   \* history: names whose applier died, or could not tell what became of them

catalog == <<snapshots, cursors, files, deletes, others>>
history == <<removed, swept, abandoned>>
vars == <<catalog, store, named, batches, job, history>>

\* What a row shows as its last snapshot while it is alive.
Alive == 0

Idle == [phase |-> "idle"]

(***************************************************************************)
(* What the catalog shows.  The source has one key, and its value at each  *)
(* snapshot is the number of that snapshot: a change deletes the row and   *)
(* inserts it again.                                                       *)
(***************************************************************************)
Max(S) == CHOOSE x \in S : \A y \in S : y <= x

Retained == DOMAIN snapshots
Newest == Max(Retained)

LiveAt(row, s) == row.begin <= s /\ (row.end = Alive \/ s < row.end)

CursorsAt(s) == {c \in cursors : LiveAt(c, s)}

RowsAt(s) == {f \in files : LiveAt(f, s) /\ ~\E x \in deletes : x.of = f.id /\ x.begin <= s}

\* The same of rows that no snapshot has ended, as a look at the catalog finds them.
CursorsNow == {c \in cursors : c.end = Alive}

RowsNow == {f \in files : f.end = Alive /\ ~\E x \in deletes : x.of = f.id}

\* The cursor as Fence.tla has it.
Stored == IF CursorsNow = {} THEN NoCursor
          ELSE LET row == CHOOSE c \in CursorsNow : TRUE IN [gen |-> row.gen, pos |-> row.pos, buried |-> 0]

\* Names that a row of the catalog mentions, whichever snapshots show that row.
Referenced == {f.name : f \in files} \cup {x.name : x \in deletes}

Changes == [kind : {"changes"}, gen : 1..MaxGeneration, expected : 0..Head, through : 1..Head]
Seeds == [kind : {"seed"}, gen : 1..MaxGeneration, expected : {NotSeeded}, through : 0..Head]

\* Kafka delivers any item at any time, so an applier that begins again needs no memory of the item that it had.
Items == {i \in Changes : i.expected < i.through} \cup Seeds

Init ==
    /\ IF Begins = "seeded"
       THEN /\ snapshots = [s \in {1} |-> [next |-> 2, token |-> 1, ours |-> TRUE]]
            /\ cursors = {[gen |-> 1, pos |-> 0, begin |-> 1, end |-> Alive]}
            /\ files = {[id |-> 1, name |-> 1, pos |-> 0, begin |-> 1, end |-> Alive]}
            /\ store = {1}
            /\ named = 1
       ELSE /\ snapshots = [s \in {1} |-> [next |-> 1, token |-> 0, ours |-> FALSE]]
            /\ cursors = {} /\ files = {} /\ store = {} /\ named = 0
    /\ deletes = {}
    /\ others = {}
    /\ batches = {}
    /\ job = [a \in Appliers |-> Idle]
    /\ removed = {}
    /\ swept = {}
    /\ abandoned = {}

(***************************************************************************)
(* What a commit adds to the catalog.                                      *)
(***************************************************************************)
Row(next, token, ours) == [next |-> next, token |-> token, ours |-> ours]

Lists(n, row) == snapshots' = [s \in Retained \cup {n} |-> IF s = n THEN row ELSE snapshots[s]]

Ended(rows, n) == {[row EXCEPT !.end = n] : row \in rows}

MovesCursor(n, from, gen, pos) ==
    cursors' = (cursors \ from) \cup Ended(cursors \cap from, n)
               \cup {[gen |-> gen, pos |-> pos, begin |-> n, end |-> Alive]}

DataFile(id, name, pos, n) == [id |-> id, name |-> name, pos |-> pos, begin |-> n, end |-> Alive]

\* The primary key of ducklake_snapshot: a number that an open transaction has inserted makes all others wait for its end.
Claimed(n) == \E b \in batches : b.claimed /\ b.looked + 1 = n

\* A writer that takes the next number may do so.
MayCommit == Newest < MaxSnapshot /\ ~Claimed(Newest + 1)

(***************************************************************************)
(* The direct path, in the applier.                                        *)
(***************************************************************************)
\* What the look says to an item, with what a mistake makes of it.
LetsThrough(item) == Passes(Stored, item) \/ (Mutant = "cursor_not_compared" /\ item.kind = "changes")

\* A seed that finds no table makes one; else it ends the cursor's row and the files of the life before.
Before(item, rows) == IF item.kind = "seed" /\ Mutant = "seed_beside_a_life" THEN {} ELSE rows

\* One statement reads the newest snapshot, the cursor and the files, and the cursor decides. Nothing stays open.
LookDirect(a) ==
    /\ "direct" \in Paths
    /\ job[a].phase = "idle"
    /\ \E item \in Items :
          /\ LetsThrough(item)
          /\ job' = [job EXCEPT ![a] = [phase |-> "looked", gen |-> item.gen, upto |-> item.through,
                                        looked |-> Newest, next |-> snapshots[Newest].next,
                                        cursor |-> Before(item, CursorsNow),
                                        rows |-> IF item.kind = "seed" THEN {} ELSE RowsNow,
                                        ends |-> IF item.kind = "seed" THEN Before(item, RowsNow) ELSE {}]]
    /\ UNCHANGED <<catalog, store, named, batches, history>>

\* Files of the look that the store no longer holds. Those that a seed ends are not read.
Missing(a) == {f \in job[a].rows : f.name \notin store}

\* Positions are read from the files of the look; a data file and a delete file are written. One name stands for both.
WriteFiles(a) ==
    /\ job[a].phase = "looked"
    /\ Missing(a) = {}
    /\ named < MaxName
    /\ named' = named + 1
    /\ store' = store \cup {named'}
    /\ job' = [job EXCEPT ![a] = [phase |-> "written", name |-> named', gen |-> @.gen, upto |-> @.upto,
                                  looked |-> @.looked, next |-> @.next, cursor |-> @.cursor, rows |-> @.rows,
                                  ends |-> @.ends]]
    /\ UNCHANGED <<catalog, batches, history>>

\* A file of the look is gone: compaction and cleanup may have taken it meanwhile, so only a fresh look tells damage.
MissFile(a) ==
    /\ job[a].phase = "looked"
    /\ Missing(a) # {}
    /\ job' = IF Missing(a) \cap RowsNow # {} \/ Mutant = "missing_is_damage"
              THEN [job EXCEPT ![a] = [phase |-> "damaged"]]
              ELSE [job EXCEPT ![a] = Idle]
    /\ UNCHANGED <<catalog, store, named, batches, history>>

\* `destination_damaged` is answered.
TellDamage(a) ==
    /\ job[a].phase = "damaged"
    /\ job' = [job EXCEPT ![a] = Idle]
    /\ UNCHANGED <<catalog, store, named, batches, history>>

\* The batch is sent as one message. It is the catalog's from then on, whatever becomes of its sender.
CommitDirect(a) ==
    LET j == job[a]
    IN  /\ j.phase = "written"
        /\ batches' = batches \cup {[name |-> j.name, gen |-> j.gen, upto |-> j.upto, looked |-> j.looked,
                                     next |-> j.next, cursor |-> j.cursor, rows |-> j.rows, ends |-> j.ends,
                                     claimed |-> FALSE, checked |-> FALSE]}
        /\ job' = [job EXCEPT ![a] = [phase |-> "sent", name |-> j.name, looked |-> j.looked, answer |-> "none"]]
        /\ UNCHANGED <<catalog, store, named, history>>

\* The catalog has acknowledged the batch: the item is applied.
AcknowledgeDirect(a) ==
    /\ job[a].phase = "sent"
    /\ job[a].answer = "durable"
    /\ job' = [job EXCEPT ![a] = Idle]
    /\ UNCHANGED <<catalog, store, named, batches, history>>

\* The catalog has refused the batch: it ended without effect.
RefuseDirect(a) ==
    /\ job[a].phase = "sent"
    /\ job[a].answer = "refused"
    /\ job' = [job EXCEPT ![a] = [phase |-> "refused", name |-> job[a].name]]
    /\ UNCHANGED <<catalog, store, named, batches, history>>

\* No answer comes, whatever became of the batch. Nothing is removed.
LoseAnswer(a) ==
    /\ "cut" \in Faults
    /\ job[a].phase = "sent"
    /\ job' = IF Mutant = "removed_while_unknown"
              THEN [job EXCEPT ![a] = [phase |-> "refused", name |-> @.name]]
              ELSE [job EXCEPT ![a] = [phase |-> "unknown", name |-> @.name, looked |-> @.looked, over |-> FALSE,
                                        absent |-> Mutant = "looks_in_turn" /\ @.name \notin Referenced]]
    /\ UNCHANGED <<catalog, store, named, batches, history>>

\* The batch of a name, if it has not ended.
BatchOf(name) == {b \in batches : b.name = name}

\* The catalog's process that served the lost connection is ended, and found to be gone: its batch is durable or void.
EndBackend(a) ==
    /\ job[a].phase = "unknown"
    /\ ~job[a].over
    /\ batches' = batches \ BatchOf(job[a].name)
    /\ job' = [job EXCEPT ![a].over = TRUE]
    /\ UNCHANGED <<catalog, store, named, history>>

\* Whether a fresh connection finds the commit. The token goes with its snapshot when that expires, the files' rows stay
\* for as long as any snapshot shows them.
Finds(j) ==
    IF Mutant = "token_decides" THEN \E s \in Retained : snapshots[s].token = j.name
    ELSE j.name \in Referenced /\ ~j.absent

\* Whether the batch can no longer become durable: its condition fails for ever once a newer snapshot is there.
IsOver(j) == j.over \/ Newest > j.looked \/ Mutant = "absent_is_enough"

\* One statement on a fresh connection tells both. Where it tells neither, the files stay as orphans.
ResolveDirect(a) ==
    LET j == job[a]
    IN  /\ j.phase = "unknown"
        /\ IF Finds(j) THEN job' = [job EXCEPT ![a] = Idle] /\ UNCHANGED abandoned
           ELSE \/ /\ IsOver(j)
                   /\ job' = [job EXCEPT ![a] = [phase |-> "refused", name |-> j.name]]
                   /\ UNCHANGED abandoned
                \/ /\ ~IsOver(j)
                   /\ job' = [job EXCEPT ![a] = Idle]
                   /\ abandoned' = abandoned \cup {j.name}
        /\ UNCHANGED <<catalog, store, named, batches, removed, swept>>

\* Files of a batch that ended without effect are removed. Then the applier looks again.
RemoveFiles(a) ==
    /\ job[a].phase = "refused"
    /\ store' = store \ {job[a].name}
    /\ removed' = removed \cup {job[a].name}
    /\ job' = [job EXCEPT ![a] = Idle]
    /\ UNCHANGED <<catalog, named, batches, swept, abandoned>>

\* Names that an applier knows to be its own.
Held(a) == IF job[a].phase \in {"written", "sent", "unknown", "refused"} THEN {job[a].name} ELSE {}

\* An applier dies, or a limit of its own makes it give up. One that freezes just takes no step for as long as it likes.
Crash(a) ==
    /\ "crash" \in Faults
    /\ job[a].phase # "idle"
    /\ job' = [job EXCEPT ![a] = Idle]
    /\ abandoned' = abandoned \cup Held(a)
    /\ UNCHANGED <<catalog, store, named, batches, removed, swept>>

(***************************************************************************)
(* The batch, in the catalog: one transaction, READ COMMITTED, so that     *)
(* each statement sees what is committed when it begins.  The number is    *)
(* claimed first and the condition comes after it.  The other order leaves *)
(* a gap in which two rivals commit and the first of them expires.         *)
(***************************************************************************)
\* The sender of a batch hears how it ended, if it still listens.
Hears(b, answer) ==
    job' = [a \in Appliers |-> IF job[a].phase = "sent" /\ job[a].name = b.name THEN [job[a] EXCEPT !.answer = answer]
                               ELSE job[a]]

Goes(b, to) == batches' = (batches \ {b}) \cup {to} /\ UNCHANGED job

Refused(b) == batches' = batches \ {b} /\ Hears(b, "refused")

IsFirst(b) == IF Mutant = "condition_before_claim" THEN b.checked ELSE ~b.checked

\* INSERT INTO ducklake_snapshot: the primary key refuses a number that is there, and waits for one that may come.
ClaimNumber(b) ==
    /\ ~b.claimed
    /\ IsFirst(b)
    /\ ~Claimed(b.looked + 1)
    /\ IF b.looked + 1 \in Retained THEN Refused(b) ELSE Goes(b, [b EXCEPT !.claimed = TRUE])
    /\ UNCHANGED <<catalog, store, named, history>>

\* What the batch requires: nothing is newer than the look, and the cursor's row of the look is alive.
Holds(b) ==
    /\ Newest = b.looked \/ Mutant = "condition_left_out"
    /\ b.cursor \subseteq CursorsNow

CheckCondition(b) ==
    /\ ~b.checked
    /\ IF Mutant = "condition_before_claim" THEN ~b.claimed ELSE b.claimed
    /\ IF Holds(b) THEN Goes(b, [b EXCEPT !.checked = TRUE]) ELSE Refused(b)
    /\ UNCHANGED <<catalog, store, named, history>>

\* COMMIT: all of it, or nothing.
BecomeDurable(b) ==
    LET n == b.looked + 1
    IN  /\ b.claimed
        /\ b.checked
        /\ n <= MaxSnapshot
        /\ Lists(n, Row(b.next + 1, b.name, TRUE))
        /\ MovesCursor(n, b.cursor, b.gen, b.upto)
        /\ files' = (files \ b.ends) \cup Ended(files \cap b.ends, n) \cup {DataFile(b.next, b.name, b.upto, n)}
        /\ deletes' = deletes \cup {[of |-> f.id, name |-> b.name, begin |-> n] : f \in b.rows}
        /\ batches' = batches \ {b}
        /\ Hears(b, "durable")
        /\ UNCHANGED <<others, store, named, history>>

\* The catalog ends, or the connection does, before the batch is durable. Its sender hears nothing.
LoseBatch(b) ==
    /\ "cut" \in Faults
    /\ batches' = batches \ {b}
    /\ UNCHANGED <<catalog, store, named, job, history>>

(***************************************************************************)
(* The path of the extension.  Its lost acknowledgements and its deadlines *)
(* are Viaduck.tla's; here it is the rival.                                *)
(***************************************************************************)
\* BEGIN, the compare-and-set, and the rest of the transaction, all as of one snapshot.
OpenExtension(a) ==
    /\ job[a].phase = "idle"
    /\ \E item \in Items :
          /\ Passes(Stored, item)
          /\ item.kind = "seed" \/ "extension" \in Paths
          /\ job' = [job EXCEPT ![a] = [phase |-> "open", kind |-> item.kind, gen |-> item.gen, upto |-> item.through,
                                        base |-> Newest, cursor |-> CursorsNow, rows |-> RowsNow]]
    /\ UNCHANGED <<catalog, store, named, batches, history>>

\* DuckLake's conflict check, by table, among the snapshots that are retained.
Conflicts(a) == \E s \in Retained : s > job[a].base /\ snapshots[s].ours

\* COMMIT takes the next number. A seed replaces the files, changes delete from them.
CommitExtension(a) ==
    LET j == job[a]
        n == Newest + 1
        next == snapshots[Newest].next
        replaced == IF j.kind = "seed" THEN {f \in files : f.end = Alive} ELSE {}
    IN  /\ j.phase = "open"
        /\ ~Conflicts(a)
        /\ MayCommit
        /\ named < MaxName
        /\ named' = named + 1
        /\ store' = store \cup {named'}
        /\ Lists(n, Row(next + 1, named', TRUE))
        /\ MovesCursor(n, j.cursor, j.gen, j.upto)
        /\ files' = (files \ replaced) \cup Ended(replaced, n) \cup {DataFile(next, named', j.upto, n)}
        /\ deletes' = IF j.kind = "seed" THEN deletes
                      ELSE deletes \cup {[of |-> f.id, name |-> named', begin |-> n] : f \in j.rows}
        /\ job' = [job EXCEPT ![a] = Idle]
        /\ UNCHANGED <<others, batches, history>>

RollBack(a) ==
    /\ job[a].phase = "open"
    /\ Conflicts(a)
    /\ job' = [job EXCEPT ![a] = Idle]
    /\ UNCHANGED <<catalog, store, named, batches, history>>

(***************************************************************************)
(* The owner of the lake.                                                  *)
(***************************************************************************)
\* A commit to another table. It takes an id of a file from the counter that all tables share.
WriteElsewhere ==
    LET next == snapshots[Newest].next
    IN  /\ "elsewhere" \in Faults
        /\ MayCommit
        /\ Lists(Newest + 1, Row(next + 1, 0, FALSE))
        /\ others' = others \cup {[id |-> next, begin |-> Newest + 1]}
        /\ UNCHANGED <<cursors, files, deletes, store, named, batches, job, history>>

\* A merge or a rewrite, by the owner or by the upkeep of Viaduck: other files, other positions, the same rows.
Compact ==
    LET n == Newest + 1
        next == snapshots[Newest].next
        old == {f \in files : f.end = Alive}
    IN  /\ "compact" \in Faults
        /\ MayCommit
        /\ named < MaxName
        /\ Cardinality(RowsNow) = 1
        /\ named' = named + 1
        /\ store' = store \cup {named'}
        /\ Lists(n, Row(next + 1, 0, TRUE))
        /\ files' = (files \ old) \cup Ended(old, n)
                    \cup {DataFile(next, named', f.pos, n) : f \in RowsNow}
        /\ UNCHANGED <<cursors, deletes, others, batches, job, history>>

\* What is left of rows that some retained snapshot, or a later one, shows.
Kept(rows, retained) == {row \in rows : row.end = Alive \/ \E s \in retained : LiveAt(row, s)}

\* A snapshot expires, and what only it showed is cleaned up at once. DuckLake never expires the newest one, so a number is
\* never given again. Open transactions of the extension are late by then, or ended (the assumptions of Viaduck.tla).
Expire(s) ==
    LET retained == Retained \ {s}
        \* The mistake is about numbers of snapshots: ids of files are not given again.
        row(t) == [snapshots[t] EXCEPT !.next = IF t = Max(retained) THEN snapshots[Newest].next ELSE @]
        kept == Kept(files, retained)
        marks == {x \in deletes : \E f \in kept : f.id = x.of}
    IN  /\ "expire" \in Faults
        /\ s \in Retained
        /\ IF Mutant = "number_reused" THEN retained # {} ELSE s # Newest
        /\ snapshots' = [t \in retained |-> IF Mutant = "number_reused" THEN row(t) ELSE snapshots[t]]
        /\ cursors' = Kept(cursors, retained)
        /\ files' = kept
        /\ deletes' = marks
        /\ store' = store \ (Referenced \ ({f.name : f \in kept} \cup {x.name : x \in marks}))
        /\ job' = [a \in Appliers |-> IF job[a].phase = "open" /\ job[a].base < s THEN Idle ELSE job[a]]
        /\ UNCHANGED <<others, named, batches, history>>

\* ducklake_delete_orphaned_files with a cutoff that is too recent: it takes files of applies that are in progress.
Sweep ==
    /\ "sweep" \in Faults
    /\ store \ Referenced # {}
    /\ store' = store \cap Referenced
    /\ swept' = swept \cup (store \ Referenced)
    /\ UNCHANGED <<catalog, named, batches, job, removed, abandoned>>

(***************************************************************************)
(* The whole.                                                              *)
(***************************************************************************)
Next ==
    \/ \E a \in Appliers : LookDirect(a) \/ WriteFiles(a) \/ MissFile(a) \/ TellDamage(a) \/ CommitDirect(a)
    \/ \E a \in Appliers : AcknowledgeDirect(a) \/ RefuseDirect(a) \/ LoseAnswer(a) \/ EndBackend(a)
    \/ \E a \in Appliers : ResolveDirect(a) \/ RemoveFiles(a) \/ Crash(a)
    \/ \E a \in Appliers : OpenExtension(a) \/ CommitExtension(a) \/ RollBack(a)
    \/ \E b \in batches : ClaimNumber(b) \/ CheckCondition(b) \/ BecomeDurable(b) \/ LoseBatch(b)
    \/ \E s \in Retained : Expire(s)
    \/ WriteElsewhere
    \/ Compact
    \/ Sweep

Spec == Init /\ [][Next]_vars

(***************************************************************************)
(* Invariants.                                                             *)
(***************************************************************************)
\* At every retained snapshot the table holds the source's row as of the position in the same snapshot, once; before the
\* first seed there is neither.
Exact ==
    \A s \in Retained :
        /\ Cardinality(CursorsAt(s)) = Cardinality(RowsAt(s))
        /\ IF s = 1 /\ Begins = "empty" THEN CursorsAt(s) = {} ELSE Cardinality(CursorsAt(s)) <= 1
        /\ Begins = "seeded" => CursorsAt(s) # {}
        /\ \A c \in CursorsAt(s), f \in RowsAt(s) : f.pos = c.pos

\* No commit overwrites another's: whatever was committed keeps its id, which it alone has.
RivalsStay ==
    /\ \A f, g \in files : f.id = g.id => f = g
    /\ \A o, p \in others : o.id = p.id => o = p
    /\ \A f \in files, o \in others : f.id # o.id

\* Files of committed snapshots exist, whatever was lost or has died, unless the owner took them.
CommittedFilesExist == Referenced \subseteq store \cup swept

\* What an applier removed is referenced by no snapshot, and never will be (batches that may still come included).
RemovedIsUnreferenced == removed \cap Referenced = {}

\* Files that nothing references are in an applier's hand, or one died over them or gave up.
OrphansAreAbandoned == store \subseteq Referenced \cup abandoned \cup UNION {Held(a) : a \in Appliers}

\* Positions only grow within a generation, and generations never fall.
PositionsOnlyGrow ==
    [][\/ Stored'.gen > Stored.gen
       \/ Stored'.gen = Stored.gen /\ Stored'.pos >= Stored.pos]_cursors

\* Each commit that moves the cursor does what the fence allows at that moment, as if it had looked just then.
StepsAreFenced ==
    [][Stored' # Stored => \E item \in Items : Passes(Stored, item) /\ Stored' = Moved(item, item.through)]_cursors

\* What a retained snapshot shows never changes.
PastStands ==
    [][\A s \in Retained \cap Retained' :
          /\ {<<c.gen, c.pos>> : c \in CursorsAt(s)} = {<<c.gen, c.pos>> : c \in CursorsAt(s)'}
          /\ {f.id : f \in RowsAt(s)} = {f.id : f \in RowsAt(s)'}]_catalog

\* Damage is told only where a file of the newest snapshot is missing.
DamageIsReal ==
    [][\A a \in Appliers : job'[a].phase = "damaged" /\ job[a].phase # "damaged"
          => \E f \in RowsNow : f.name \notin store]_job

TypeOK ==
    /\ Retained # {} /\ Newest <= MaxSnapshot
    /\ store \subseteq 1..named
    /\ named <= MaxName
    /\ \A b, c \in batches : b.claimed /\ c.claimed /\ b.looked = c.looked => b = c
=============================================================================
