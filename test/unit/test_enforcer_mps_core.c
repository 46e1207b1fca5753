/* The supervisor's table, and what the daemon's tool prints. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "enforcer/mps_core.h"
#include "enforcer/mps_parse.h"

static const struct en_mps_times times = {.start_ms = 30000,
					  .start_ask_ms = 200,
					  .ask_ms = 10000,
					  .sick_ask_ms = 2000,
					  .quit_ms = 60000,
					  .kill_ms = 5000,
					  .backoff_min_ms = 1000,
					  .backoff_max_ms = 60000,
					  .stable_ms = 300000,
					  .blocked_ms = 10000,
					  .bad_max = 3};

static struct en_mps_core core;

static void start(void)
{
	en_mps_core_init(&core, &times, 0);
}

TestSuite(enforcer_mps_core, .init = start);

struct step {
	enum en_mps_event ev;
	int64_t at_ms;
	enum en_mps_state state;
	enum en_mps_action action;
};

static void walk(const struct step *s, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		enum en_mps_action a = en_mps_core_event(&core, s[i].ev, s[i].at_ms);

		cr_assert_eq(core.state, s[i].state, "step %zu (%s): %s, not %s", i,
			     en_mps_event_name(s[i].ev), en_mps_state_name(core.state),
			     en_mps_state_name(s[i].state));
		cr_assert_eq(a, s[i].action, "step %zu (%s): action %d", i,
			     en_mps_event_name(s[i].ev), (int)a);
	}
}
#define WALK(...)                                                                                  \
	do {                                                                                       \
		const struct step steps[] = {__VA_ARGS__};                                         \
		walk(steps, sizeof(steps) / sizeof(steps[0]));                                     \
	} while (0)

Test(enforcer_mps_core, from_off_to_ready_to_off)
{
	WALK({EN_MPS_EV_TIME, 5, EN_MPS_OFF, EN_MPS_DO_NOTHING},
	     {EN_MPS_EV_WANT, 10, EN_MPS_LOOKING, EN_MPS_DO_LOOK},
	     {EN_MPS_EV_NONE_FOUND, 10, EN_MPS_STARTING, EN_MPS_DO_SPAWN},
	     {EN_MPS_EV_TIME, 100, EN_MPS_STARTING, EN_MPS_DO_NOTHING},
	     {EN_MPS_EV_TIME, 210, EN_MPS_STARTING, EN_MPS_DO_ASK},
	     {EN_MPS_EV_SILENT, 210, EN_MPS_STARTING, EN_MPS_DO_NOTHING},
	     {EN_MPS_EV_TIME, 410, EN_MPS_STARTING, EN_MPS_DO_ASK},
	     {EN_MPS_EV_NOT_YET, 410, EN_MPS_STARTING, EN_MPS_DO_NOTHING},
	     {EN_MPS_EV_TIME, 610, EN_MPS_STARTING, EN_MPS_DO_ASK},
	     {EN_MPS_EV_GOOD, 610, EN_MPS_READY, EN_MPS_DO_READY},
	     {EN_MPS_EV_TIME, 10609, EN_MPS_READY, EN_MPS_DO_NOTHING},
	     {EN_MPS_EV_TIME, 10610, EN_MPS_READY, EN_MPS_DO_ASK},
	     {EN_MPS_EV_GOOD, 10610, EN_MPS_READY, EN_MPS_DO_NOTHING},
	     {EN_MPS_EV_UNWANT, 10700, EN_MPS_QUITTING, EN_MPS_DO_QUIT},
	     {EN_MPS_EV_EXITED, 10800, EN_MPS_OFF, EN_MPS_DO_CLEAN});
	cr_assert_eq(core.starts, 1);
	cr_assert_eq(core.readies, 1);
}

/* It does not become ready: killed, and started again with a longer pause each time, up to a bound. */
Test(enforcer_mps_core, back_off)
{
	static const int64_t pauses[] = {1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000};
	int64_t now = 0;

	en_mps_core_event(&core, EN_MPS_EV_WANT, now);
	for (size_t i = 0; i < sizeof(pauses) / sizeof(pauses[0]); i++) {
		WALK({EN_MPS_EV_NONE_FOUND, now, EN_MPS_STARTING, EN_MPS_DO_SPAWN},
		     {EN_MPS_EV_TIME, now + 30000, EN_MPS_KILLING, EN_MPS_DO_KILL},
		     {EN_MPS_EV_TIME, now + 35000, EN_MPS_KILLING, EN_MPS_DO_KILL},
		     {EN_MPS_EV_EXITED, now + 35001, EN_MPS_BACKOFF, EN_MPS_DO_CLEAN});
		now += 35001;
		cr_assert_eq(en_mps_core_due(&core) - now, pauses[i], "pause %zu", i);
		now += pauses[i];
		WALK({EN_MPS_EV_TIME, now - 1, EN_MPS_BACKOFF, EN_MPS_DO_NOTHING},
		     {EN_MPS_EV_TIME, now, EN_MPS_LOOKING, EN_MPS_DO_LOOK});
	}
}

/* Stable for a while: the next end is a first one again. A short life is not. */
Test(enforcer_mps_core, stable_resets_back_off)
{
	core.attempt = 6;
	WALK({EN_MPS_EV_WANT, 0, EN_MPS_LOOKING, EN_MPS_DO_LOOK},
	     {EN_MPS_EV_NONE_FOUND, 0, EN_MPS_STARTING, EN_MPS_DO_SPAWN},
	     {EN_MPS_EV_GOOD, 0, EN_MPS_READY, EN_MPS_DO_READY},
	     {EN_MPS_EV_EXITED, 299999, EN_MPS_BACKOFF, EN_MPS_DO_CLEAN});
	cr_assert_eq(core.attempt, 7);
	WALK({EN_MPS_EV_TIME, 360000, EN_MPS_LOOKING, EN_MPS_DO_LOOK},
	     {EN_MPS_EV_NONE_FOUND, 360000, EN_MPS_STARTING, EN_MPS_DO_SPAWN},
	     {EN_MPS_EV_GOOD, 360000, EN_MPS_READY, EN_MPS_DO_READY},
	     {EN_MPS_EV_EXITED, 660000, EN_MPS_BACKOFF, EN_MPS_DO_CLEAN});
	cr_assert_eq(core.attempt, 1);
}

/* Case 43: one missed answer is forgiven, a fault is not; three in a row are a wedge. */
Test(enforcer_mps_core, case_43_sick_and_wedged)
{
	WALK({EN_MPS_EV_WANT, 0, EN_MPS_LOOKING, EN_MPS_DO_LOOK},
	     {EN_MPS_EV_NONE_FOUND, 0, EN_MPS_STARTING, EN_MPS_DO_SPAWN},
	     {EN_MPS_EV_GOOD, 0, EN_MPS_READY, EN_MPS_DO_READY});
	cr_assert(en_mps_core_usable(&core));
	WALK({EN_MPS_EV_SILENT, 10, EN_MPS_SICK, EN_MPS_DO_NOTHING});
	cr_assert(en_mps_core_usable(&core));
	WALK({EN_MPS_EV_TIME, 2010, EN_MPS_SICK, EN_MPS_DO_ASK},
	     {EN_MPS_EV_SILENT, 2010, EN_MPS_SICK, EN_MPS_DO_NOTHING});
	cr_assert_not(en_mps_core_usable(&core));
	WALK({EN_MPS_EV_GOOD, 4010, EN_MPS_READY, EN_MPS_DO_NOTHING});
	cr_assert(en_mps_core_usable(&core));
	cr_assert_eq(core.bad, 0);
	WALK({EN_MPS_EV_FAULT, 5000, EN_MPS_SICK, EN_MPS_DO_NOTHING});
	cr_assert_not(en_mps_core_usable(&core));
	WALK({EN_MPS_EV_FAULT, 7000, EN_MPS_SICK, EN_MPS_DO_NOTHING},
	     {EN_MPS_EV_SILENT, 9000, EN_MPS_KILLING, EN_MPS_DO_KILL},
	     {EN_MPS_EV_EXITED, 9100, EN_MPS_BACKOFF, EN_MPS_DO_CLEAN});
}

Test(enforcer_mps_core, asked_to_end)
{
	WALK({EN_MPS_EV_WANT, 0, EN_MPS_LOOKING, EN_MPS_DO_LOOK},
	     {EN_MPS_EV_OURS_FOUND, 0, EN_MPS_STARTING, EN_MPS_DO_ASK},
	     {EN_MPS_EV_GOOD, 0, EN_MPS_READY, EN_MPS_DO_READY},
	     {EN_MPS_EV_RECYCLE, 10, EN_MPS_QUITTING, EN_MPS_DO_QUIT},
	     {EN_MPS_EV_TIME, 60009, EN_MPS_QUITTING, EN_MPS_DO_NOTHING},
	     {EN_MPS_EV_TIME, 60010, EN_MPS_KILLING, EN_MPS_DO_KILL},
	     {EN_MPS_EV_EXITED, 60020, EN_MPS_BACKOFF, EN_MPS_DO_CLEAN},
	     {EN_MPS_EV_UNWANT, 60030, EN_MPS_OFF, EN_MPS_DO_NOTHING});
	cr_assert_eq(core.starts, 0, "it was found");
	/* Wanted again while it ends. */
	WALK({EN_MPS_EV_WANT, 70000, EN_MPS_LOOKING, EN_MPS_DO_LOOK},
	     {EN_MPS_EV_NONE_FOUND, 70000, EN_MPS_STARTING, EN_MPS_DO_SPAWN},
	     {EN_MPS_EV_UNWANT, 70010, EN_MPS_QUITTING, EN_MPS_DO_QUIT},
	     {EN_MPS_EV_WANT, 70020, EN_MPS_QUITTING, EN_MPS_DO_NOTHING},
	     {EN_MPS_EV_EXITED, 70030, EN_MPS_BACKOFF, EN_MPS_DO_CLEAN},
	     {EN_MPS_EV_TIME, 71030, EN_MPS_LOOKING, EN_MPS_DO_LOOK});
}

Test(enforcer_mps_core, another_daemon)
{
	WALK({EN_MPS_EV_WANT, 0, EN_MPS_LOOKING, EN_MPS_DO_LOOK},
	     {EN_MPS_EV_OTHER_FOUND, 0, EN_MPS_BLOCKED, EN_MPS_DO_NOTHING},
	     {EN_MPS_EV_TIME, 10000, EN_MPS_LOOKING, EN_MPS_DO_LOOK},
	     {EN_MPS_EV_NO_START, 10000, EN_MPS_BACKOFF, EN_MPS_DO_NOTHING});
	cr_assert_not(en_mps_core_usable(&core));
}

/* Any events in any order: never stuck, never two processes, a bounded pause. */
Test(enforcer_mps_core, random_walk)
{
	struct rng rng;
	int64_t now = 0;
	bool process = false;

	rng_init(&rng, 4711);
	for (int i = 0; i < 200000; i++) {
		enum en_mps_event ev = (enum en_mps_event)rng_below(&rng, EN_MPS_EVENT_COUNT);
		enum en_mps_action a;

		/* What cannot happen: an end without a process, a found one where none was looked for. */
		if (ev == EN_MPS_EV_EXITED && !process)
			continue;
		now += (int64_t)rng_below(&rng, 40000);
		if (ev == EN_MPS_EV_OURS_FOUND && core.state == EN_MPS_LOOKING)
			process = true;
		if (ev == EN_MPS_EV_NO_START && core.state == EN_MPS_STARTING)
			process = false;
		a = en_mps_core_event(&core, ev, now);
		if (a == EN_MPS_DO_SPAWN) {
			cr_assert_not(process, "step %d", i);
			process = true;
		}
		if (ev == EN_MPS_EV_EXITED) {
			process = false;
			cr_assert_eq(a, EN_MPS_DO_CLEAN, "step %d: an end is always noticed", i);
		}
		cr_assert_eq(core.state == EN_MPS_OFF && core.wanted, false, "step %d", i);
		cr_assert(core.state == EN_MPS_OFF || core.state == EN_MPS_LOOKING ||
				  en_mps_core_due(&core) <= now + 60000,
			  "step %d: %s waits for ever", i, en_mps_state_name(core.state));
		if (core.state == EN_MPS_OFF || core.state == EN_MPS_BACKOFF ||
		    core.state == EN_MPS_BLOCKED)
			cr_assert_not(process, "step %d: left behind", i);
	}
	cr_assert_gt(core.readies, 100);
}

Test(enforcer_mps_core, names)
{
	for (int i = 0; i < EN_MPS_STATE_COUNT; i++)
		cr_assert_str_neq(en_mps_state_name((enum en_mps_state)i), "?");
	for (int i = 0; i < EN_MPS_EVENT_COUNT; i++)
		cr_assert_str_neq(en_mps_event_name((enum en_mps_event)i), "?");
}

/* ---- parsing ---- */

TestSuite(enforcer_mps_parse);

Test(enforcer_mps_parse, servers)
{
	static const char text[] =
		"training,1000,48201,Ready,/run/nvidia-mps/training,GPU-abcd-1234,-\n"
		"\n uid_0 , 0 , - , INITIALIZING , - , - , - \r\n";
	struct en_mps_server rows[2];
	struct err err = ERR_INIT;
	size_t count = 0;

	cr_assert_eq(mps_parse_servers(text, strlen(text), rows, 2, &count, &err), 0, "%s",
		     err.msg);
	cr_assert_eq(count, 2);
	cr_assert_str_eq(rows[0].name, "training");
	cr_assert_eq(rows[0].pid, 48201);
	cr_assert_str_eq(rows[0].status, "Ready");
	cr_assert_str_eq(rows[0].dir, "/run/nvidia-mps/training");
	cr_assert_str_eq(rows[1].name, "uid_0");
	cr_assert_eq(rows[1].pid, 0);
	cr_assert_str_eq(rows[1].status, "INITIALIZING");
	cr_assert_str_eq(rows[1].dir, "");
	cr_assert_eq(mps_parse_servers(text, strlen(text), rows, 1, &count, &err), 0);
	cr_assert_eq(count, 2, "more than there is room for");
	cr_assert_eq(mps_parse_servers("", 0, rows, 1, &count, &err), 0);
	cr_assert_eq(count, 0);
	for (size_t i = 0; i < 4; i++) {
		static const char *const bad[] = {"Server not found", "a,1,2", "A,0,1,Ready,/x",
						  "a,0,1,,/x"};

		cr_assert_eq(mps_parse_servers(bad[i], strlen(bad[i]), rows, 1, &count, &err),
			     ERR_INVALID, "%s", bad[i]);
	}
}

Test(enforcer_mps_parse, clients)
{
	static const char text[] = "51023,training,0,default,python train.py\n"
				   "3167082,srv,GPU-cc97aa,srv/default (0),VLLM::EngineCore\n"
				   "7,srv,1,srv/ts_a_1 (3),sh -c a,b,c\n"
				   "8,srv,0,default\n";
	struct en_mps_client rows[4];
	size_t count = 0;

	cr_assert_eq(mps_parse_clients(text, strlen(text), rows, 4, &count, NULL), 0);
	cr_assert_eq(count, 4);
	cr_assert_eq(rows[0].pid, 51023);
	cr_assert_str_eq(rows[0].device, "0");
	cr_assert_str_eq(rows[0].command, "python train.py");
	cr_assert_str_eq(rows[1].device, "GPU-cc97aa");
	cr_assert_str_eq(rows[1].ns, "default");
	cr_assert_str_eq(rows[2].ns, "ts_a_1");
	cr_assert_str_eq(rows[2].command, "sh -c a,b,c");
	cr_assert_str_eq(rows[3].command, "");
	/* A command with a new line in it, made to look like an end of the list. */
	cr_assert_eq(mps_parse_clients("9,srv,0,default,sh\nServer not found\n10,srv,0,default,x",
				       55, rows, 4, &count, NULL),
		     0);
	cr_assert_eq(count, 2);
	cr_assert_eq(rows[1].pid, 10);
	cr_assert_eq(mps_parse_clients("Server not found\n10,srv,0,default,x", 35, rows, 4, &count,
				       NULL),
		     ERR_INVALID);
	cr_assert_eq(mps_parse_clients("x,a,0,default,c", 15, rows, 4, &count, NULL), ERR_INVALID);
}

Test(enforcer_mps_parse, namespaces)
{
	static const char text[] = "default,shared,Ready,-,-,0,/run/nvidia-mps/shared/default\n"
				   "ts_a,shared,Ready,4G,50.00,0,/run/nvidia-mps/shared/ts_a\n"
				   "small,shared,Ready,20G,12.5\n";
	struct en_mps_namespace rows[3];
	size_t count = 0;

	cr_assert_eq(mps_parse_namespaces(text, strlen(text), rows, 3, &count, NULL), 0);
	cr_assert_eq(count, 3);
	cr_assert_eq(rows[0].centipercent, -1);
	cr_assert_eq(rows[1].centipercent, 5000);
	cr_assert_str_eq(rows[1].dir, "/run/nvidia-mps/shared/ts_a");
	cr_assert_eq(rows[2].centipercent, 1250);
	cr_assert_str_eq(rows[2].dir, "");
	cr_assert_eq(mps_parse_namespaces("a,b,Ready,-,x%", 14, rows, 3, &count, NULL),
		     ERR_INVALID);
}

Test(enforcer_mps_parse, values)
{
	static const struct {
		const char *text;
		int32_t centi; /* -1: refused */
	} percents[] = {{"40.0\n", 4000}, {"100", 10000}, {" 12.5 ", 1250},
			{"50.00", 5000},  {"0.009", 0},   {"100.1", -1},
			{"-5", -1},       {"", -1},       {"Unknown command", -1},
			{"4 0", -1}};
	int64_t pids[2];
	size_t count = 0;
	char text[8];
	int32_t v;

	for (size_t i = 0; i < sizeof(percents) / sizeof(percents[0]); i++) {
		const char *t = percents[i].text;

		v = -1;
		cr_assert_eq(mps_parse_percent(t, strlen(t), &v, NULL) == 0, percents[i].centi >= 0,
			     "%s", t);
		cr_assert_eq(v, percents[i].centi, "%s", t);
	}
	cr_assert_eq(mps_parse_pids("12\n34\n\n56", 9, pids, 2, &count, NULL), 0);
	cr_assert_eq(count, 3);
	cr_assert_eq(pids[1], 34);
	cr_assert_eq(mps_parse_pids("", 0, pids, 2, &count, NULL), 0);
	cr_assert_eq(count, 0);
	cr_assert_eq(mps_parse_pids("Server 1 not found", 18, pids, 2, &count, NULL), ERR_INVALID);
	cr_assert_eq(mps_parse_value(" Ready\n", 7, text, sizeof(text), NULL), 0);
	cr_assert_str_eq(text, "Ready");
	cr_assert_eq(mps_parse_value("\n", 1, text, sizeof(text), NULL), ERR_INVALID);
	cr_assert_eq(mps_parse_value("a\nb", 3, text, sizeof(text), NULL), ERR_INVALID);
	cr_assert_eq(mps_parse_value("12345678", 8, text, sizeof(text), NULL), ERR_TOO_LARGE);
}

Test(enforcer_mps_parse, complaints)
{
	static const char *const complaints[] = {
		"Unknown command \"bogus\"",
		"Server 1 not found",
		"Invalid priority value - must be 0 or 1!",
		"A user id (UID) is required to start a new server",
		"Server not found",
		"Insufficient privileges for UID 60000. 'NAMESPACE SET' requires server owner.",
		"An instance of this daemon is already running",
		"Cannot find MPS control daemon process",
		"40.0\nUnknown command \"x\"",
	};
	static const char *const answers[] = {
		"",
		"40.0",
		"training,1000,48201,Ready,/run/nvidia-mps/training,GPU-abcd-1234,-",
		"51023,training,0,default,python train.py",
		"12\n13\n",
		"/run/nvidia-mps/training"};

	for (size_t i = 0; i < sizeof(complaints) / sizeof(complaints[0]); i++)
		cr_assert(mps_is_complaint(complaints[i], strlen(complaints[i])), "%s",
			  complaints[i]);
	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
		cr_assert_not(mps_is_complaint(answers[i], strlen(answers[i])), "%s", answers[i]);
}

Test(enforcer_mps_parse, status)
{
	cr_assert_eq(mps_status_kind("Ready", NULL), EN_MPS_STATUS_READY);
	cr_assert_eq(mps_status_kind("ACTIVE", NULL), EN_MPS_STATUS_READY);
	cr_assert_eq(mps_status_kind("INITIALIZING", NULL), EN_MPS_STATUS_WAIT);
	cr_assert_eq(mps_status_kind("FAULT", ""), EN_MPS_STATUS_FAULT);
	cr_assert_eq(mps_status_kind("Idle", NULL), EN_MPS_STATUS_UNKNOWN);
	cr_assert_eq(mps_status_kind("Idle", "Sleeping,idle"), EN_MPS_STATUS_READY);
	cr_assert_eq(mps_status_kind("Idl", "Sleeping,idle"), EN_MPS_STATUS_UNKNOWN);
	cr_assert_eq(mps_status_kind("", ",,"), EN_MPS_STATUS_UNKNOWN);
}
