------------------------------ MODULE Viaduck ------------------------------
(***************************************************************************)
(* The protocol of the services: one source, readers that cut              *)
(* ranges, a Kafka that may do anything to a message but forge it,         *)
(* appliers that stop and die between any two steps, catalogs that commit  *)
(* without saying so, and a control that begins lives.                     *)
(*                                                                         *)
(* Actions are named like the functions of the code, which cite them.      *)
(* README.md says what is left out and why that is sound.                  *)
(***************************************************************************)
EXTENDS Fence, FiniteSets, Sequences

CONSTANTS
    Destinations,   \* each is its own routing value; a row of any other value is nobody's
    Keys,
    Readers,
    Appliers,
    Scripts,        \* histories of the source: a sequence of sequences of writes [key, to]
    MaxGeneration,
    MaxBag,         \* messages of one topic that are under way at once
    Pins,           \* whether items are pinned: {FALSE}, or BOOLEAN where a range can end before the head
    MaxRewind,       \* how many snapshots before the head a pinned seed may begin: a rewind
    Faults,         \* which of "crash", "cut", "lose", "wipe", "expire", "forget", "upkeep", "operate", "drop", "registry", "calm" happen
    OnGap,          \* "park" or "reseed"
    SeededAt,       \* where destinations are at the start: NotSeeded, or a snapshot that their first life holds already
    Mutant          \* "none", or the one mistake that is planted

VARIABLES
    script,     \* which history the source's owners will make, chosen at the start
    head,       \* the source's newest snapshot
    oldest,     \* the source's oldest retained snapshot
    want,       \* control's registry: a destination's generation, whether it runs, is parked, is to be dropped
    dest,       \* the destination lakes: cursor, rows, damage, and where its lives before were dropped
    pending,    \* the COMMIT of a destination's catalog that was sent and is neither durable nor refused yet
    work,       \* viaduck.work
    progress,   \* viaduck.progress
    known,      \* what each reader believes of each destination
    job,        \* what each applier has in hand
    calm        \* faults, writes and operators have stopped

vars == <<script, head, oldest, want, dest, pending, work, progress, known, job, calm>>
sourceVars == <<script, head, oldest>>
kafkaVars == <<work, progress>>

Nobody == "nobody"
None == [none |-> TRUE]
Elsewhere == [key |-> "-", to |-> Nobody]    \* a commit to another table of the source lake

Max(S) == CHOOSE x \in S : \A y \in S : y <= x
Max2(a, b) == IF a >= b THEN a ELSE b

(***************************************************************************)
(* The source.  A write sends a key's row to a routing value: an insert,   *)
(* an update, a move between tenants, or (to Nobody) a delete.  A row's    *)
(* value is the snapshot that wrote it.                                    *)
(***************************************************************************)
WritesOf(sc, k, upto) == {s \in 1..upto : sc[s].key = k}

CellOf(sc, d, k, at) ==
    LET writes == WritesOf(sc, k, at)
    IN  IF writes # {} /\ sc[Max(writes)].to = d THEN Max(writes) ELSE 0

\* Constant, so that TLC computes it once.
Slices == [n \in 1..Len(Scripts) |-> [d \in Destinations |-> [at \in 0..Len(Scripts[n]) |->
              [k \in Keys |-> CellOf(Scripts[n], d, k, at)]]]]

\* Which keys snapshot `at` touches for `d`: the routing value of the pre- or of the post-image.
TouchesOf(sc, d, at) == {k \in Keys : CellOf(sc, d, k, at - 1) # CellOf(sc, d, k, at)}

Touches == [n \in 1..Len(Scripts) |-> [d \in Destinations |-> [at \in 1..Len(Scripts[n]) |->
               TouchesOf(Scripts[n], d, at)]]]

Slice(d, at) == Slices[script][d][at]

\* What the change feed tells of (after, through]: a snapshot that is not retained is left out in silence.
Feed(d, after, through) == UNION {Touches[script][d][s] : s \in {x \in after + 1 .. through : x > oldest}}

\* The same with nothing left out.
Touched(d, after, through) == UNION {Touches[script][d][s] : s \in after + 1 .. through}

Unchanged(d, after, through) == Touched(d, after, through) = {}

(***************************************************************************)
(* Messages.                                                               *)
(***************************************************************************)
Item(kind, d, gen, expected, after, through, pinned) ==
    [kind |-> kind, d |-> d, gen |-> gen, expected |-> expected, after |-> after, through |-> through,
     pinned |-> pinned]

Progress(d, outcome, gen, pos, through) ==
    [d |-> d, outcome |-> outcome, gen |-> gen, pos |-> pos, through |-> through]

Idle == [phase |-> "idle"]

\* What a reader knows of a destination that it has not heard of.
Stranger == [gen |-> 0, pos |-> Unknown, exact |-> Unknown]

Cursor(d) == [gen |-> dest[d].gen, pos |-> dest[d].pos, buried |-> dest[d].buried]

\* The last life that a lake tells of.
Life(d) == Max2(dest[d].gen, dest[d].buried)

\* The job of `a`, on `d`: idle ones have no item.
Works(a, d) == job[a].phase # "idle" /\ job[a].item.d = d

\* Nothing of `d` is under way: longer patience than any job needs, which only liveness asks for.
Quiet(d) ==
    /\ \A i \in work : i.d # d
    /\ \A m \in progress : m.d # d
    /\ \A a \in Appliers : ~Works(a, d)
    /\ pending[d] = None

Init ==
    /\ script \in 1..Len(Scripts)
    /\ head = Max2(0, SeededAt)
    /\ oldest = 0
    /\ want = [d \in Destinations |-> [gen |-> 1, runs |-> TRUE, parked |-> FALSE, drops |-> FALSE]]
    /\ dest = [d \in Destinations |->
                 [gen |-> IF SeededAt = NotSeeded THEN 0 ELSE 1, pos |-> SeededAt, rows |-> Slice(d, head),
                  gone |-> {}, twice |-> FALSE, buried |-> 0]]
    /\ pending = [d \in Destinations |-> None]
    /\ work = {}
    /\ progress = {}
    /\ known = [r \in Readers |-> [d \in Destinations |->
                  IF SeededAt = NotSeeded THEN Stranger ELSE [gen |-> 1, pos |-> SeededAt, exact |-> SeededAt]]]
    /\ job = [a \in Appliers |-> Idle]
    /\ calm = FALSE

(***************************************************************************)
(* The source's owners.                                                    *)
(***************************************************************************)
Write ==
    /\ ~calm
    /\ head < Len(Scripts[script])
    /\ head' = head + 1
    /\ UNCHANGED <<script, oldest, want, dest, pending, kafkaVars, known, job, calm>>

ExpireSource ==
    /\ "expire" \in Faults
    /\ ~calm
    /\ \E o \in oldest + 1 .. head : oldest' = o
    /\ UNCHANGED <<script, head, want, dest, pending, kafkaVars, known, job, calm>>

(***************************************************************************)
(* control/lifecycle.py                                                    *)
(***************************************************************************)
NextLife(d) ==
    /\ want[d].gen < MaxGeneration
    /\ want' = [want EXCEPT ![d] = [gen |-> @.gen + 1, runs |-> TRUE, parked |-> FALSE, drops |-> FALSE]]

\* lifecycle.reseed by an operator; a rewind is one whose seed begins at an older snapshot.
Reseed(d) ==
    /\ "operate" \in Faults
    /\ ~calm
    /\ want[d].runs
    /\ NextLife(d)
    /\ UNCHANGED <<sourceVars, dest, pending, kafkaVars, known, job, calm>>

\* lifecycle.remove: what it wrote stays, and late items may still move it.
Remove(d) ==
    /\ "operate" \in Faults
    /\ ~calm
    /\ want[d].runs
    /\ want' = [want EXCEPT ![d].runs = FALSE]
    /\ UNCHANGED <<sourceVars, dest, pending, kafkaVars, known, job, calm>>

\* lifecycle.drop: a last life, in which an applier takes away what is there. It leaves a generation to begin in.
Bury(d) ==
    /\ "drop" \in Faults
    /\ ~calm
    /\ want[d].runs
    /\ want[d].gen + 1 < MaxGeneration
    /\ want' = [want EXCEPT ![d] = [gen |-> @.gen + 1, runs |-> FALSE, parked |-> FALSE, drops |-> TRUE]]
    /\ UNCHANGED <<sourceVars, dest, pending, kafkaVars, known, job, calm>>

\* lifecycle.declare, of a destination that was removed.
Declare(d) ==
    /\ ~calm
    /\ ~want[d].runs
    /\ NextLife(d)
    /\ UNCHANGED <<sourceVars, dest, pending, kafkaVars, known, job, calm>>

\* The registry is lost and made anew from the file, where every destination is in its first life.
LoseRegistry(d) ==
    /\ "registry" \in Faults
    /\ ~calm
    /\ want' = [want EXCEPT ![d] = [gen |-> 1, runs |-> TRUE, parked |-> FALSE, drops |-> FALSE]]
    /\ UNCHANGED <<sourceVars, dest, pending, kafkaVars, known, job, calm>>

\* answers.answer and lifecycle.adopt
Hears(d, m) == m.d = d /\ want[d].runs
Adopts(d, m) == Hears(d, m) /\ m.outcome = "fenced" /\ m.gen > want[d].gen
Parks(d, m) == Hears(d, m) /\ m.outcome \in {"damaged", "expired"} /\ m.gen = want[d].gen /\ ~want[d].parked
Reseeds(d, m) == Parks(d, m) /\ (m.outcome = "damaged" \/ OnGap = "reseed")

Answer(d, m) ==
    /\ \/ /\ Adopts(d, m)
          /\ want' = [want EXCEPT ![d].gen = m.gen, ![d].parked = FALSE]
       \/ /\ Reseeds(d, m)
          /\ NextLife(d)
       \/ /\ Parks(d, m)
          /\ ~Reseeds(d, m)
          /\ want' = [want EXCEPT ![d].parked = TRUE]
    /\ UNCHANGED <<sourceVars, dest, pending, kafkaVars, known, job, calm>>

(***************************************************************************)
(* reader/plan.py                                                          *)
(***************************************************************************)
Runs(d) == want[d].runs /\ ~want[d].parked

\* Planner.destination: a new life is probed first.
Destination(r, d) ==
    /\ known[r][d].gen # want[d].gen
    /\ known' = [known EXCEPT ![r][d] = [gen |-> want[d].gen, pos |-> Unknown, exact |-> Unknown]]
    /\ UNCHANGED <<sourceVars, want, dest, pending, kafkaVars, job, calm>>

\* A reader knows nothing after a start.
Restart(r) ==
    /\ "crash" \in Faults
    /\ ~calm
    /\ known' = [known EXCEPT ![r] = [d \in Destinations |-> Stranger]]
    /\ UNCHANGED <<sourceVars, want, dest, pending, kafkaVars, job, calm>>

\* answers.accept and answers.overhear: positions of one generation only grow, so an old answer tells nothing new.
Learns(k, m) ==
    IF m.gen = k.gen /\ m.outcome \in {"applied", "already_applied", "gap"} /\ m.pos > k.pos
    THEN [k EXCEPT !.pos = m.pos, !.exact = Max2(k.exact, m.pos)]
    ELSE IF m.gen = k.gen /\ m.outcome = "empty" /\ k.pos >= m.pos /\ m.through > k.exact
    THEN [k EXCEPT !.exact = m.through]
    ELSE IF m.outcome = "fenced" /\ 0 < m.gen /\ m.gen < k.gen /\ k.pos = Unknown
    THEN [k EXCEPT !.pos = NotSeeded, !.exact = NotSeeded]
    ELSE k

Accept(r, m) ==
    /\ Learns(known[r][m.d], m) # known[r][m.d]
    /\ known' = [known EXCEPT ![r][m.d] = Learns(known[r][m.d], m)]
    /\ UNCHANGED <<sourceVars, want, dest, pending, kafkaVars, job, calm>>

\* Ledger.settle: over snapshots that are counted and touch nothing of it a destination moves on for free. Only what is
\* retained can be counted.
Settle(r, d) ==
    LET k == known[r][d]
    IN  /\ k.pos >= 0
        /\ k.exact >= oldest \/ Mutant = "count_over_a_hole"
        /\ \E e \in k.exact + 1 .. head :
              /\ Feed(d, k.exact, e) = {}
              /\ known' = [known EXCEPT ![r][d].exact = e]
        /\ UNCHANGED <<sourceVars, want, dest, pending, kafkaVars, job, calm>>

Send(item) ==
    /\ Runs(item.d)
    /\ item \notin work
    /\ Cardinality(work) < MaxBag
    /\ calm => Quiet(item.d) /\ Mutant # "never_planned_again"
    /\ work' = work \cup {item}
    /\ UNCHANGED <<sourceVars, want, dest, pending, progress, known, job, calm>>

\* choose.choose, its four kinds of item
Probe(r, d) ==
    LET k == known[r][d]
    IN  k.gen > 0 /\ k.pos = Unknown /\ Send(Item("probe", d, k.gen, NotSeeded, NotSeeded, 0, FALSE))

Seed(r, d) ==
    LET k == known[r][d]
    IN  /\ k.pos = NotSeeded
        /\ \/ Send(Item("seed", d, k.gen, NotSeeded, NotSeeded, head, FALSE))
           \/ \E at \in IF TRUE \in Pins THEN Max2(oldest, head - MaxRewind) .. head ELSE {} :
                 Send(Item("seed", d, k.gen, NotSeeded, NotSeeded, at, TRUE))

Drop(d) ==
    LET item == Item("drop", d, want[d].gen, NotSeeded, NotSeeded, 0, FALSE)
    IN  /\ want[d].drops
        /\ item \notin work
        /\ Cardinality(work) < MaxBag
        /\ work' = work \cup {item}
        /\ UNCHANGED <<sourceVars, want, dest, pending, progress, known, job, calm>>

\* The next range begins where the destination is known to be exact, or later where nothing of it changed in between.
\* It ends where the reader cuts it. What it counted may be too much, so there may be nothing in the range after all.
Changes(r, d) ==
    LET k == known[r][d]
        first == {s \in k.exact + 1 .. head : Touches[script][d][s] # {}}
        next == CHOOSE s \in first : \A t \in first : s <= t
        after == IF first = {} THEN k.exact
                 ELSE IF Mutant = "inclusive_after" THEN next
                 ELSE next - 1
    IN  /\ k.pos >= 0
        /\ \E through \in after + 1 .. head, pinned \in Pins :
              Send(Item("changes", d, k.gen, k.pos, after, through, pinned))

Advance(r, d) ==
    LET k == known[r][d]
    IN  k.pos >= 0 /\ k.exact > k.pos /\ Send(Item("advance", d, k.gen, k.pos, k.exact, k.exact, TRUE))

\* problems.judge: a destination that the source's history no longer reaches is told of, not left behind in silence.
Judge(r, d) ==
    LET k == known[r][d]
        told == Progress(d, "expired", k.gen, NotSeeded, NotSeeded)
    IN  /\ k.pos >= 0
        /\ k.exact < oldest
        /\ Runs(d)
        /\ calm => Quiet(d)
        /\ told \notin progress
        /\ Cardinality(progress) < MaxBag
        /\ progress' = progress \cup {told}
        /\ UNCHANGED <<sourceVars, want, dest, pending, work, known, job, calm>>

(***************************************************************************)
(* Kafka.  A delivery takes nothing out, so a message comes again, in any  *)
(* order, any time later.  Only Lose and Wipe take out: a message that is  *)
(* dropped, that ages out, or whose offset was committed.                  *)
(***************************************************************************)
LoseItem(item) ==
    /\ "lose" \in Faults
    /\ ~calm
    /\ work' = work \ {item}
    /\ UNCHANGED <<sourceVars, want, dest, pending, progress, known, job, calm>>

\* Whoever has heard an answer commits its offset.
Heard(m) ==
    /\ \A r \in Readers : Learns(known[r][m.d], m) = known[r][m.d]
    /\ ~Adopts(m.d, m)
    /\ ~Parks(m.d, m)

LoseProgress(m) ==
    /\ "lose" \in Faults
    /\ ~calm \/ Heard(m)
    /\ progress' = progress \ {m}
    /\ UNCHANGED <<sourceVars, want, dest, pending, work, known, job, calm>>

\* The broker is gone with everything on it; a new one stands where it was.
Wipe ==
    /\ "wipe" \in Faults
    /\ ~calm
    /\ work \cup progress # {}
    /\ work' = {}
    /\ progress' = {}
    /\ UNCHANGED <<sourceVars, want, dest, pending, known, job, calm>>

(***************************************************************************)
(* applier/: one job of one applier                                        *)
(***************************************************************************)
Publish(m) ==
    /\ \/ m \in progress
       \/ Cardinality(progress) < MaxBag
    /\ progress' = progress \cup {m}

Ends(a) == job' = [job EXCEPT ![a] = Idle]

\* Files that the cursor's own last commit brought are there (unknown.require_files).
Whole(d) == dest[d].pos \notin dest[d].gone

\* Applier._answer: what the cursor means for an item, once the files of its last commit were looked at (H7).
OfCursor(item) ==
    LET d == item.d
        decided == Decide(Cursor(d), item)
        \* After a drop: the first generation that may begin.
        life == IF dest[d].gen = 0 THEN dest[d].buried + 1 ELSE dest[d].gen
    IN  IF decided = "fenced" THEN Progress(d, "fenced", life, NotSeeded, NotSeeded)
        ELSE IF ~Whole(d) /\ Mutant # "answer_unlooked" /\ ~(item.kind = "probe" /\ Mutant = "probe_unlooked")
                          /\ ~(decided = "gap" /\ Mutant = "gap_unlooked")
        THEN Progress(d, "damaged", item.gen, NotSeeded, NotSeeded)
        ELSE IF item.kind = "probe" THEN Progress(d, "already_applied", item.gen, dest[d].pos, dest[d].pos)
        ELSE Progress(d, decided, item.gen, dest[d].pos, dest[d].pos)

\* In calm a delivered item is gone: redelivery is a fault too.
Delivered(item) == work' = IF calm THEN work \ {item} ELSE work

\* admit.admit, and Feed.read: one transaction of the source, so one head and one history for all that is read in it.
\* An applier's directory may be of any age, so whatever comes may be admitted.
TakeProbe(a, item) ==
    /\ item.kind = "probe"
    /\ Publish(OfCursor(item))
    /\ UNCHANGED <<job>>

Reads(a, item, upto, keys) ==
    /\ job' = [job EXCEPT ![a] = [phase |-> "read", item |-> item, upto |-> upto, keys |-> keys]]
    /\ UNCHANGED progress

TakeSeed(a, item) ==
    /\ item.kind = "seed"
    /\ LET upto == IF item.pinned THEN item.through ELSE head
       IN  IF upto >= oldest THEN Reads(a, item, upto, Keys) ELSE UNCHANGED <<job, progress>>

TakeAdvance(a, item) ==
    /\ item.kind = "advance"
    /\ Reads(a, item, item.through, {})

TakeChanges(a, item) ==
    /\ item.kind = "changes"
    /\ LET upto == IF item.pinned THEN item.through ELSE head
           keys == Feed(item.d, item.after, upto)
       IN  IF item.after < oldest /\ Mutant # "no_history_check"
           THEN Publish(Progress(item.d, "expired", item.gen, NotSeeded, NotSeeded)) /\ UNCHANGED job
           ELSE IF keys = {}
           THEN Publish(Progress(item.d, "empty", item.gen, item.expected, upto)) /\ UNCHANGED job
           ELSE Reads(a, item, upto, keys)

\* What the conflict check would find from now on, were nothing expired.
Rivals(d) == {a \in Appliers : job[a].phase \in {"open", "checked"} /\ job[a].item.d = d
                               /\ ~(Mutant = "cursor_born_without_its_table" /\ job[a].base.gen = 0)}

\* drop.drop: table and cursor go in one transaction; whoever has one open has written to a table that is gone. Without a
\* cursor there is nothing to drop. Its answer carries no knowledge.
TakeDrop(item) ==
    LET d == item.d
    IN  /\ item.kind = "drop"
        /\ pending[d] = None
        /\ dest[d].gen \in 1 .. item.gen
        /\ dest' = [dest EXCEPT ![d] = [gen |-> 0, pos |-> NotSeeded, rows |-> [k \in Keys |-> 0], gone |-> {},
                                        twice |-> FALSE, buried |-> item.gen]]
        /\ job' = [a \in Appliers |-> IF a \in Rivals(d) THEN [job[a] EXCEPT !.conflict = TRUE] ELSE job[a]]
        /\ Delivered(item)
        /\ UNCHANGED <<sourceVars, want, pending, progress, known, calm>>

Take(a, item) ==
    /\ job[a].phase = "idle"
    /\ Delivered(item)
    /\ TakeProbe(a, item) \/ TakeSeed(a, item) \/ TakeAdvance(a, item) \/ TakeChanges(a, item)
    /\ UNCHANGED <<sourceVars, want, dest, pending, known, calm>>

\* The compare-and-set, with what a mistake makes of it.
LetsThrough(cursor, item) ==
    \/ Passes(cursor, item)
    \/ Mutant = "no_generation_check" /\ item.kind # "seed" /\ cursor.gen > 0 /\ cursor.pos = item.expected
    \/ Mutant = "trust_kafkas_offset" /\ item.kind # "seed" /\ cursor.gen = item.gen
    \/ Mutant = "reseed_without_fence" /\ item.kind = "seed"
    \/ Mutant = "drop_is_forgotten" /\ item.kind = "seed" /\ cursor.gen = 0

\* BEGIN, then the first write: the destination's snapshot is pinned, the cursor compared and set in it.
MoveCursor(a) ==
    /\ job[a].phase = "read"
    /\ LetsThrough(Cursor(job[a].item.d), job[a].item)
    /\ job' = [job EXCEPT ![a] = [phase |-> "open", item |-> @.item, upto |-> @.upto, keys |-> @.keys,
                                  base |-> Cursor(@.item.d), conflict |-> FALSE, clock |-> "in time"]]
    /\ UNCHANGED <<sourceVars, want, dest, pending, kafkaVars, known, calm>>

\* decide.decide, where the compare-and-set changed no row: roll back, read the cursor, answer.
DecideAnew(a) ==
    /\ job[a].phase = "read"
    /\ ~LetsThrough(Cursor(job[a].item.d), job[a].item)
    /\ Publish(OfCursor(job[a].item))
    /\ Ends(a)
    /\ UNCHANGED <<sourceVars, want, dest, pending, work, known, calm>>

\* Delete, insert, stamp; then the deadline is looked at, right before COMMIT.
CheckDeadline(a) ==
    /\ job[a].phase = "open"
    /\ IF job[a].clock = "late" /\ Mutant # "no_deadline"
       THEN Ends(a)
       ELSE job' = [job EXCEPT ![a].phase = "checked"]
    /\ UNCHANGED <<sourceVars, want, dest, pending, kafkaVars, known, calm>>

\* DuckLake's conflict check knows only snapshots that were not expired meanwhile (H6). What is sent takes the next
\* snapshot id, so nobody else commits to this lake until it is durable or refused.
SendCommit(a) ==
    LET j == job[a]
        d == j.item.d
        position == IF Mutant = "through_of_the_item" THEN j.item.through ELSE j.upto
        net == [k \in Keys |-> IF k \in j.keys THEN Slice(d, j.upto)[k] ELSE dest[d].rows[k]]
    IN  /\ j.phase = "checked"
        /\ pending[d] = None
        /\ IF j.clock = "ended" /\ Mutant # "no_idle_timeout" THEN Ends(a) /\ UNCHANGED pending
           ELSE IF j.conflict
           THEN /\ job' = [job EXCEPT ![a] = [phase |-> "read", item |-> j.item, upto |-> j.upto, keys |-> j.keys]]
                /\ UNCHANGED pending
           ELSE /\ job' = [job EXCEPT ![a] = [phase |-> "sent", item |-> [d |-> d, gen |-> j.item.gen],
                                              upto |-> j.upto, wrote |-> j.keys # {}, fate |-> "under way"]]
                /\ pending' = [pending EXCEPT ![d] = [base |-> j.base, kind |-> j.item.kind, rows |-> net,
                                                      cursor |-> Moved(j.item, position), whole |-> TRUE]]
        /\ UNCHANGED <<sourceVars, want, dest, kafkaVars, known, calm>>

\* Who waits for the COMMIT of `d` that is under way; nobody where its applier died or gave up.
Sender(d) == {a \in Appliers : job[a].phase \in {"sent", "unknown"} /\ job[a].item.d = d /\ job[a].fate = "under way"}

\* The catalog makes a COMMIT durable. Files that its sender deleted, taking a lost answer for a refusal, are gone (H7).
Commit(d) ==
    LET p == pending[d]
        born == p.kind = "seed"
        lost == IF p.whole THEN {} ELSE {p.cursor.pos}
        doubled == p.base # Cursor(d)
        moved == IF Mutant = "cursor_apart" /\ p.kind # "seed" THEN Cursor(d) ELSE p.cursor
    IN  /\ p # None
        /\ dest' = [dest EXCEPT ![d] = [gen |-> moved.gen, pos |-> moved.pos, buried |-> moved.buried, rows |-> p.rows,
                                        gone |-> IF born THEN lost ELSE @.gone \cup lost,
                                        twice |-> (@.twice /\ ~born) \/ doubled]]
        /\ pending' = [pending EXCEPT ![d] = None]
        /\ job' = [a \in Appliers |-> IF a \in Sender(d) THEN [job[a] EXCEPT !.fate = "durable"]
                                      ELSE IF a \in Rivals(d) THEN [job[a] EXCEPT !.conflict = TRUE]
                                      ELSE job[a]]
        /\ UNCHANGED <<sourceVars, want, kafkaVars, known, calm>>

\* The catalog ended before it was durable.
Refuse(d) ==
    /\ "cut" \in Faults
    /\ ~calm
    /\ pending[d] # None
    /\ pending' = [pending EXCEPT ![d] = None]
    /\ job' = [a \in Appliers |-> IF a \in Sender(d) THEN [job[a] EXCEPT !.fate = "refused"] ELSE job[a]]
    /\ UNCHANGED <<sourceVars, want, dest, kafkaVars, known, calm>>

Acknowledge(a) ==
    /\ job[a].phase = "sent"
    /\ job[a].fate = "durable"
    /\ Publish(Progress(job[a].item.d, "applied", job[a].item.gen, job[a].upto, job[a].upto))
    /\ Ends(a)
    /\ IF Mutant = "cursor_apart"
       THEN dest' = [dest EXCEPT ![job[a].item.d].gen = job[a].item.gen, ![job[a].item.d].pos = job[a].upto]
       ELSE UNCHANGED dest
    /\ UNCHANGED <<sourceVars, want, pending, work, known, calm>>

\* The answer to COMMIT does not come, or is a refusal: DuckLake deletes the files that it wrote, if it may, and raises.
\* A seed that came since has a table of its own, so nothing that it needs is deleted.
Cut(a) ==
    LET j == job[a]
        d == j.item.d
    IN  /\ j.phase = "sent"
        /\ j.fate = "refused" \/ ("cut" \in Faults /\ ~calm)
        /\ job' = [job EXCEPT ![a].phase = "unknown"]
        /\ \E deletes \in BOOLEAN :
             /\ deletes => j.wrote
             /\ dest' = IF deletes /\ j.fate = "durable" /\ dest[d].gen = j.item.gen
                        THEN [dest EXCEPT ![d].gone = @ \cup {j.upto}] ELSE dest
             /\ pending' = IF deletes /\ j.fate = "under way" THEN [pending EXCEPT ![d].whole = FALSE] ELSE pending
        /\ UNCHANGED <<sourceVars, want, kafkaVars, known, calm>>

\* Applier._resolve_unknown: the token tells, then the files are opened. Where it can't be found (not durable yet,
\* expired, the catalog out of reach) the try has failed: whoever comes next finds the cursor where it is.
ResolveUnknown(a) ==
    LET j == job[a]
        d == j.item.d
        isThere == j.fate = "durable"
        isDamaged == dest[d].gen = j.item.gen /\ j.upto \in dest[d].gone /\ Mutant # "token_is_enough"
    IN  /\ j.phase = "unknown"
        /\ \/ /\ isThere
              /\ Publish(IF isDamaged THEN Progress(d, "damaged", j.item.gen, NotSeeded, NotSeeded)
                         ELSE Progress(d, "applied", j.item.gen, j.upto, j.upto))
           \/ /\ ~isThere \/ ~calm
              /\ UNCHANGED progress
        /\ Ends(a)
        /\ UNCHANGED <<sourceVars, want, dest, pending, work, known, calm>>

\* A process dies, between any two steps. One that freezes just takes no step for as long as it likes.
Crash(a) ==
    /\ "crash" \in Faults
    /\ ~calm
    /\ job[a].phase # "idle"
    /\ Ends(a)
    /\ UNCHANGED <<sourceVars, want, dest, pending, kafkaVars, known, calm>>

\* The destination's owner expires snapshots, and with them what the conflict check of an open transaction would find.
\* Retention is longer than the deadline and the catalog's idle timeout: by then a transaction that still works is late,
\* and one that stands still right before its COMMIT was ended by the catalog.
ExpireDestination(d) ==
    LET open == {a \in Appliers : job[a].phase \in {"open", "checked"} /\ job[a].item.d = d /\ job[a].conflict}
    IN  /\ "forget" \in Faults
        /\ ~calm
        /\ open # {}
        /\ job' = [a \in Appliers |->
                     IF a \in open
                     THEN [job[a] EXCEPT !.conflict = FALSE,
                                         !.clock = IF job[a].phase = "open" THEN "late"
                                                   ELSE IF job[a].clock = "late" THEN "late" ELSE "ended"]
                     ELSE job[a]]
        /\ UNCHANGED <<sourceVars, want, dest, pending, kafkaVars, known, calm>>

\* fenced_expiry.expire: the same by Viaduck's own upkeep, at any moment. Its transaction writes to the cursor, and that
\* snapshot stays: whoever has one open finds a conflict with it, however late the transaction is (H6 without a clock).
KeepUp(d) ==
    LET open == {a \in Appliers : job[a].phase \in {"open", "checked"} /\ job[a].item.d = d}
    IN  /\ "upkeep" \in Faults
        /\ ~calm
        /\ dest[d].gen > 0
        /\ pending[d] = None
        /\ open # {}
        /\ job' = [a \in Appliers |-> IF a \in open THEN [job[a] EXCEPT !.conflict = Mutant # "bare_expiry"] ELSE job[a]]
        /\ UNCHANGED <<sourceVars, want, dest, pending, kafkaVars, known, calm>>

\* A file that an item has to read is not there (the tenant's own reads, `viaduck verify` or a delete meet it).
FindDamage(d) ==
    /\ dest[d].gone # {}
    /\ dest[d].gen = want[d].gen
    /\ Publish(Progress(d, "damaged", dest[d].gen, NotSeeded, NotSeeded))
    /\ UNCHANGED <<sourceVars, want, dest, pending, work, known, job, calm>>

Calm ==
    /\ "calm" \in Faults
    /\ ~calm
    /\ calm' = TRUE
    /\ UNCHANGED <<sourceVars, want, dest, pending, kafkaVars, known, job>>

(***************************************************************************)
(* The whole.                                                              *)
(***************************************************************************)
Plan(r, d) == Probe(r, d) \/ Seed(r, d) \/ Changes(r, d) \/ Judge(r, d)

Work(a) ==
    \/ \E item \in work : Take(a, item) \/ TakeDrop(item)
    \/ MoveCursor(a) \/ DecideAnew(a) \/ CheckDeadline(a) \/ SendCommit(a) \/ Acknowledge(a) \/ Cut(a)
    \/ ResolveUnknown(a)

Operators == \E d \in Destinations : Reseed(d) \/ Remove(d) \/ Bury(d) \/ Declare(d) \/ LoseRegistry(d)

Next ==
    \/ Write
    \/ ExpireSource
    \/ Operators
    \/ \E d \in Destinations, m \in progress : Answer(d, m)
    \/ \E d \in Destinations : Drop(d)
    \/ \E r \in Readers : Restart(r)
    \/ \E r \in Readers, d \in Destinations : Destination(r, d) \/ Settle(r, d) \/ Plan(r, d) \/ Advance(r, d)
    \/ \E r \in Readers, m \in progress : Accept(r, m)
    \/ \E item \in work : LoseItem(item)
    \/ \E m \in progress : LoseProgress(m)
    \/ Wipe
    \/ \E a \in Appliers : Work(a) \/ Crash(a)
    \/ \E d \in Destinations : Commit(d) \/ Refuse(d) \/ ExpireDestination(d) \/ KeepUp(d) \/ FindDamage(d)
    \/ Calm

Spec == Init /\ [][Next]_vars

\* What goes on once faults have stopped: nothing of this is a fault, so nothing of it may be left undone for ever.
Fair ==
    /\ \A r \in Readers, d \in Destinations : WF_vars(Destination(r, d)) /\ WF_vars(Plan(r, d))
    /\ \A r \in Readers : WF_vars(\E m \in progress : Accept(r, m))
    /\ \A d \in Destinations : WF_vars(\E m \in progress : Answer(d, m))
    /\ WF_vars(\E m \in progress : LoseProgress(m))
    /\ \A a \in Appliers : WF_vars(Work(a))
    /\ \A d \in Destinations : WF_vars(Commit(d)) /\ WF_vars(FindDamage(d))

LiveSpec == Spec /\ Fair

(***************************************************************************)
(* Invariants.  None of them says "unless".                                *)
(***************************************************************************)
\* The promise: at every snapshot a destination holds exactly its slice of the source at its position, once.
Exact ==
    \A d \in Destinations :
        /\ ~dest[d].twice
        /\ dest[d].gen > 0 => dest[d].rows = Slice(d, dest[d].pos)
        /\ dest[d].gen = 0 => dest[d].rows = [k \in Keys |-> 0]

\* A position that somebody told or believes never passes what the destination holds: between it and the stored one
\* nothing of the destination changed.
Holds(d, gen, told) ==
    gen = dest[d].gen /\ told > dest[d].pos => dest[d].rows = Slice(d, told) /\ Unchanged(d, dest[d].pos, told)

NobodyAhead ==
    /\ \A r \in Readers, d \in Destinations :
          known[r][d].pos >= 0 =>
              /\ known[r][d].gen <= Life(d)
              /\ known[r][d].gen = dest[d].gen => known[r][d].pos <= dest[d].pos
              /\ Holds(d, known[r][d].gen, known[r][d].exact)
    /\ \A m \in progress : m.outcome \in {"applied", "already_applied", "gap"} /\ m.gen = dest[m.d].gen
                              => m.pos <= dest[m.d].pos

\* Whoever is told that a commit went through has its files: a lost acknowledgement is never a silent loss (H7).
AppliedIsWhole ==
    \A m \in progress : m.outcome = "applied" /\ m.gen = dest[m.d].gen => m.pos \notin dest[m.d].gone

\* No destination is served from a history that the source no longer keeps whole: what was read for it, or found empty,
\* is all there is.
NotServedExpired ==
    /\ \A a \in Appliers :
          job[a].phase \in {"read", "open", "checked"} /\ job[a].item.kind = "changes"
             => job[a].keys = Touched(job[a].item.d, job[a].item.after, job[a].upto)
    /\ \A m \in progress : m.outcome = "empty" => Unchanged(m.d, m.pos, m.through)

TypeOK ==
    /\ head \in 0..Len(Scripts[script]) /\ oldest \in 0..head
    /\ \A d \in Destinations : dest[d].gen \in 0..MaxGeneration /\ dest[d].pos \in NotSeeded..head
                               /\ dest[d].buried \in 0..MaxGeneration
                               /\ want[d].gen \in 1..MaxGeneration
    /\ Cardinality(work) <= MaxBag /\ Cardinality(progress) <= MaxBag
    /\ \A d \in Destinations : Cardinality(Sender(d)) <= 1 /\ (Sender(d) # {} => pending[d] # None)

\* Positions only grow within a generation, and generations never fall.
Grows(d) ==
    \/ Life(d)' > Life(d)
    \/ dest'[d].gen = dest[d].gen /\ dest'[d].pos >= dest[d].pos

PositionsOnlyGrow == [][\A d \in Destinations : Grows(d)]_dest

\* What an older life sent changes nothing: a commit is of this life, or of a later one that it begins, and a drop is of
\* one that ends it.
Belongs(d) ==
    Cursor(d)' # Cursor(d) \/ dest'[d].rows # dest[d].rows =>
        \/ dest'[d].gen = 0 /\ dest'[d].buried >= Life(d)
        \/ /\ pending[d] # None
           /\ IF pending[d].kind = "seed" THEN pending[d].cursor.gen > Life(d)
                                          ELSE pending[d].cursor.gen = dest[d].gen

OldLivesAreFenced == [][\A d \in Destinations : Belongs(d)]_dest

\* A position is told only by someone who found the files of that commit there (H7).
Looked(m) ==
    m.outcome \in {"applied", "already_applied", "gap"} /\ m.gen = dest[m.d].gen => m.pos \notin dest'[m.d].gone

ToldIsWhole == [][\A m \in progress' \ progress : Looked(m)]_progress

(***************************************************************************)
(* Liveness.                                                               *)
(***************************************************************************)
\* The source no longer keeps what the destination still has to see.
Stranded(d) == dest[d].pos < oldest /\ ~Unchanged(d, dest[d].pos, head)

\* The model's bound, not the system's: there is no further life that could heal this one.
OutOfLives(d) == want[d].gen = MaxGeneration /\ (dest[d].gone # {} \/ Stranded(d))

AtHead(d) ==
    /\ dest[d].gen = want[d].gen
    /\ dest[d].gone = {}
    /\ Unchanged(d, dest[d].pos, head)

Settled == \A d \in Destinations : AtHead(d) \/ ~want[d].runs \/ want[d].parked \/ OutOfLives(d)

\* Once faults stop, every running destination reaches the head, or its operator is told why it can't.
ReachesHead == calm ~> []Settled
=============================================================================
