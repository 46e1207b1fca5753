#include "enforcer/mps_core.h"

#include <stddef.h>

struct row {
	enum en_mps_state state;
	enum en_mps_event event;
	enum en_mps_state next;
	enum en_mps_action action;
};

/* What is not listed is ignored: the state stays, nothing is done. WANT and UNWANT are remembered in
 * every state; they are listed where they move something at once. */
static const struct row table[] = {
	{EN_MPS_OFF, EN_MPS_EV_WANT, EN_MPS_LOOKING, EN_MPS_DO_LOOK},

	{EN_MPS_LOOKING, EN_MPS_EV_UNWANT, EN_MPS_OFF, EN_MPS_DO_NOTHING},
	{EN_MPS_LOOKING, EN_MPS_EV_NONE_FOUND, EN_MPS_STARTING, EN_MPS_DO_SPAWN},
	{EN_MPS_LOOKING, EN_MPS_EV_OURS_FOUND, EN_MPS_STARTING, EN_MPS_DO_ASK},
	{EN_MPS_LOOKING, EN_MPS_EV_OTHER_FOUND, EN_MPS_BLOCKED, EN_MPS_DO_NOTHING},
	{EN_MPS_LOOKING, EN_MPS_EV_NO_START, EN_MPS_BACKOFF, EN_MPS_DO_NOTHING},

	{EN_MPS_STARTING, EN_MPS_EV_UNWANT, EN_MPS_QUITTING, EN_MPS_DO_QUIT},
	{EN_MPS_STARTING, EN_MPS_EV_NO_START, EN_MPS_BACKOFF, EN_MPS_DO_CLEAN},
	{EN_MPS_STARTING, EN_MPS_EV_EXITED, EN_MPS_BACKOFF, EN_MPS_DO_CLEAN},
	{EN_MPS_STARTING, EN_MPS_EV_GOOD, EN_MPS_READY, EN_MPS_DO_READY},
	{EN_MPS_STARTING, EN_MPS_EV_RECYCLE, EN_MPS_QUITTING, EN_MPS_DO_QUIT},
	{EN_MPS_STARTING, EN_MPS_EV_WEDGED, EN_MPS_KILLING, EN_MPS_DO_KILL},
	{EN_MPS_STARTING, EN_MPS_EV_TIME, EN_MPS_KILLING, EN_MPS_DO_KILL},

	{EN_MPS_READY, EN_MPS_EV_UNWANT, EN_MPS_QUITTING, EN_MPS_DO_QUIT},
	{EN_MPS_READY, EN_MPS_EV_EXITED, EN_MPS_BACKOFF, EN_MPS_DO_CLEAN},
	{EN_MPS_READY, EN_MPS_EV_NOT_YET, EN_MPS_SICK, EN_MPS_DO_NOTHING},
	{EN_MPS_READY, EN_MPS_EV_FAULT, EN_MPS_SICK, EN_MPS_DO_NOTHING},
	{EN_MPS_READY, EN_MPS_EV_SILENT, EN_MPS_SICK, EN_MPS_DO_NOTHING},
	{EN_MPS_READY, EN_MPS_EV_RECYCLE, EN_MPS_QUITTING, EN_MPS_DO_QUIT},
	{EN_MPS_READY, EN_MPS_EV_WEDGED, EN_MPS_KILLING, EN_MPS_DO_KILL},

	{EN_MPS_SICK, EN_MPS_EV_UNWANT, EN_MPS_QUITTING, EN_MPS_DO_QUIT},
	{EN_MPS_SICK, EN_MPS_EV_EXITED, EN_MPS_BACKOFF, EN_MPS_DO_CLEAN},
	{EN_MPS_SICK, EN_MPS_EV_GOOD, EN_MPS_READY, EN_MPS_DO_NOTHING},
	{EN_MPS_SICK, EN_MPS_EV_RECYCLE, EN_MPS_QUITTING, EN_MPS_DO_QUIT},
	{EN_MPS_SICK, EN_MPS_EV_WEDGED, EN_MPS_KILLING, EN_MPS_DO_KILL},

	{EN_MPS_QUITTING, EN_MPS_EV_EXITED, EN_MPS_BACKOFF, EN_MPS_DO_CLEAN},
	{EN_MPS_QUITTING, EN_MPS_EV_WEDGED, EN_MPS_KILLING, EN_MPS_DO_KILL},
	{EN_MPS_QUITTING, EN_MPS_EV_TIME, EN_MPS_KILLING, EN_MPS_DO_KILL},

	{EN_MPS_KILLING, EN_MPS_EV_EXITED, EN_MPS_BACKOFF, EN_MPS_DO_CLEAN},
	{EN_MPS_KILLING, EN_MPS_EV_TIME, EN_MPS_KILLING, EN_MPS_DO_KILL},

	{EN_MPS_BACKOFF, EN_MPS_EV_UNWANT, EN_MPS_OFF, EN_MPS_DO_NOTHING},
	{EN_MPS_BACKOFF, EN_MPS_EV_TIME, EN_MPS_LOOKING, EN_MPS_DO_LOOK},

	{EN_MPS_BLOCKED, EN_MPS_EV_UNWANT, EN_MPS_OFF, EN_MPS_DO_NOTHING},
	{EN_MPS_BLOCKED, EN_MPS_EV_TIME, EN_MPS_LOOKING, EN_MPS_DO_LOOK},
};

static const struct row *find(enum en_mps_state s, enum en_mps_event e)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		if (table[i].state == s && table[i].event == e)
			return &table[i];
	}
	return NULL;
}

static int64_t backoff(const struct en_mps_core *c)
{
	int64_t ms = c->t.backoff_min_ms;

	for (int i = 1; i < c->attempt && ms < c->t.backoff_max_ms; i++)
		ms *= 2;
	return ms < c->t.backoff_max_ms ? ms : c->t.backoff_max_ms;
}

/* How long a state may last, and when the daemon is asked in it; -1 = for ever, never. */
static void arm(struct en_mps_core *c, int64_t now_ms)
{
	int64_t limit = -1, ask = -1;

	switch (c->state) {
	case EN_MPS_STARTING:
		limit = c->t.start_ms;
		ask = c->t.start_ask_ms;
		break;
	case EN_MPS_READY:
		ask = c->t.ask_ms;
		break;
	case EN_MPS_SICK:
		ask = c->t.sick_ask_ms;
		break;
	case EN_MPS_QUITTING:
		limit = c->t.quit_ms;
		break;
	case EN_MPS_KILLING:
		limit = c->t.kill_ms;
		break;
	case EN_MPS_BACKOFF:
		limit = backoff(c);
		break;
	case EN_MPS_BLOCKED:
		limit = c->t.blocked_ms;
		break;
	default:
		break;
	}
	c->deadline_ms = limit < 0 ? INT64_MAX : now_ms + limit;
	c->ask_ms = ask < 0 ? INT64_MAX : now_ms + ask;
}

static enum en_mps_action move(struct en_mps_core *c, enum en_mps_state next,
			       enum en_mps_action action, int64_t now_ms)
{
	if (c->state == EN_MPS_READY && now_ms - c->since_ms >= c->t.stable_ms)
		c->attempt = 0;
	if (action == EN_MPS_DO_SPAWN)
		c->starts++;
	if (action == EN_MPS_DO_READY)
		c->readies++;
	if (next == EN_MPS_READY || next == EN_MPS_STARTING) {
		c->bad = 0;
		c->bad_is_fault = false;
	}
	if (next == EN_MPS_BACKOFF) {
		/* An end that was asked for is no failure. */
		if (!c->wanted)
			next = EN_MPS_OFF;
		else if (c->state != EN_MPS_QUITTING)
			c->attempt++;
	}
	c->state = next;
	c->since_ms = now_ms;
	arm(c, now_ms);
	return action;
}

/* Counts an answer that is not good; true when they are too many. */
static bool count_bad(struct en_mps_core *c, enum en_mps_event ev)
{
	c->bad++;
	if (ev == EN_MPS_EV_FAULT)
		c->bad_is_fault = true;
	return c->bad >= c->t.bad_max;
}

static bool is_bad_answer(enum en_mps_event ev)
{
	return ev == EN_MPS_EV_NOT_YET || ev == EN_MPS_EV_FAULT || ev == EN_MPS_EV_SILENT;
}

enum en_mps_action en_mps_core_event(struct en_mps_core *c, enum en_mps_event ev, int64_t now_ms)
{
	const struct row *r;

	if (ev == EN_MPS_EV_WANT || ev == EN_MPS_EV_UNWANT)
		c->wanted = ev == EN_MPS_EV_WANT;
	if (ev == EN_MPS_EV_TIME && now_ms < c->deadline_ms) {
		if (now_ms < c->ask_ms)
			return EN_MPS_DO_NOTHING;
		arm(c, now_ms); /* the question; the deadline stays */
		if (c->state == EN_MPS_STARTING)
			c->deadline_ms = c->since_ms + c->t.start_ms;
		return EN_MPS_DO_ASK;
	}
	if ((c->state == EN_MPS_READY || c->state == EN_MPS_SICK) && is_bad_answer(ev) &&
	    count_bad(c, ev))
		ev = EN_MPS_EV_WEDGED;
	r = find(c->state, ev);
	if (r == NULL)
		return EN_MPS_DO_NOTHING;
	return move(c, r->next, r->action, now_ms);
}

int64_t en_mps_core_due(const struct en_mps_core *c)
{
	return c->ask_ms < c->deadline_ms ? c->ask_ms : c->deadline_ms;
}

bool en_mps_core_usable(const struct en_mps_core *c)
{
	return c->state == EN_MPS_READY ||
	       (c->state == EN_MPS_SICK && c->bad == 1 && !c->bad_is_fault);
}

static int64_t or_default(int64_t v, int64_t dflt)
{
	return v > 0 ? v : dflt;
}

void en_mps_core_init(struct en_mps_core *c, const struct en_mps_times *t, int64_t now_ms)
{
	*c = (struct en_mps_core){
		.t = {.start_ms = or_default(t->start_ms, 30000),
		      .start_ask_ms = or_default(t->start_ask_ms, 200),
		      .ask_ms = or_default(t->ask_ms, 10000),
		      .sick_ask_ms = or_default(t->sick_ask_ms, 2000),
		      .quit_ms = or_default(t->quit_ms, 60000),
		      .kill_ms = or_default(t->kill_ms, 5000),
		      .backoff_min_ms = or_default(t->backoff_min_ms, 1000),
		      .backoff_max_ms = or_default(t->backoff_max_ms, 60000),
		      .stable_ms = or_default(t->stable_ms, 300000),
		      .blocked_ms = or_default(t->blocked_ms, 10000),
		      .bad_max = t->bad_max > 0 ? t->bad_max : 3},
		.state = EN_MPS_OFF,
		.since_ms = now_ms,
	};
	arm(c, now_ms);
}

const char *en_mps_state_name(enum en_mps_state s)
{
	static const char *const names[] = {"off",      "looking", "starting", "ready",  "sick",
					    "quitting", "killing", "backoff",  "blocked"};

	return s < EN_MPS_STATE_COUNT ? names[s] : "?";
}

const char *en_mps_event_name(enum en_mps_event e)
{
	static const char *const names[] = {"want",        "unwant",   "none-found", "ours-found",
					    "other-found", "no-start", "good",       "not-yet",
					    "fault",       "silent",   "exited",     "recycle",
					    "wedged",      "time"};

	return e < EN_MPS_EVENT_COUNT ? names[e] : "?";
}
