/* When the MPS control daemon is looked for, started, asked, ended and started again: a table of states
 * and events. Knows nothing of processes; time comes in with each event. */
#ifndef TESSERA_ENFORCER_MPS_CORE_H
#define TESSERA_ENFORCER_MPS_CORE_H

#include <stdbool.h>
#include <stdint.h>

enum en_mps_state {
	EN_MPS_OFF,      /* not wanted, not there */
	EN_MPS_LOOKING,  /* is a daemon there already? */
	EN_MPS_STARTING, /* there is a process; it does not answer well yet */
	EN_MPS_READY,    /* answers, and its server is ready */
	EN_MPS_SICK,     /* was ready; the last answers were not good */
	EN_MPS_QUITTING, /* was asked to end */
	EN_MPS_KILLING,  /* was killed */
	EN_MPS_BACKOFF,  /* waits before the next start */
	EN_MPS_BLOCKED,  /* a daemon that is not ours holds the directory */
	EN_MPS_STATE_COUNT,
};

enum en_mps_event {
	EN_MPS_EV_WANT,        /* the daemon shall run */
	EN_MPS_EV_UNWANT,      /* it shall not */
	EN_MPS_EV_NONE_FOUND,  /* looked: no daemon there */
	EN_MPS_EV_OURS_FOUND,  /* looked: one that an earlier enforcer started */
	EN_MPS_EV_OTHER_FOUND, /* looked: somebody else's */
	EN_MPS_EV_NO_START,    /* the program could not be started */
	EN_MPS_EV_GOOD,        /* asked: all well */
	EN_MPS_EV_NOT_YET,     /* asked: the server is not ready yet */
	EN_MPS_EV_FAULT,       /* asked: the server is in FAULT, missing, or in an unknown status */
	EN_MPS_EV_SILENT,      /* asked: no answer in time, or none that can be read */
	EN_MPS_EV_EXITED,      /* the process ended */
	EN_MPS_EV_RECYCLE,     /* start it anew, politely */
	EN_MPS_EV_WEDGED,      /* start it anew, by force */
	EN_MPS_EV_TIME,        /* nothing but time went by */
	EN_MPS_EVENT_COUNT,
};

enum en_mps_action {
	EN_MPS_DO_NOTHING,
	EN_MPS_DO_LOOK,
	EN_MPS_DO_SPAWN,
	EN_MPS_DO_ASK,
	EN_MPS_DO_QUIT,  /* ask it to end */
	EN_MPS_DO_KILL,  /* the daemon and its servers, by force */
	EN_MPS_DO_CLEAN, /* it is gone: remove what it left */
	EN_MPS_DO_READY, /* it became ready: make namespaces again */
};

struct en_mps_times {                           /* 0: the value in brackets */
	int64_t start_ms;                       /* from start to ready, at most [30,000] */
	int64_t start_ask_ms;                   /* between questions while starting [200] */
	int64_t ask_ms;                         /* between questions when ready [10,000] */
	int64_t sick_ask_ms;                    /* between questions when sick [2,000] */
	int64_t quit_ms;                        /* to end by itself [60,000] */
	int64_t kill_ms;                        /* before it is killed again [5,000] */
	int64_t backoff_min_ms, backoff_max_ms; /* doubles between them [1,000, 60,000] */
	int64_t stable_ms;  /* ready for so long: back-off starts over [300,000] */
	int64_t blocked_ms; /* before it is looked again [10,000] */
	int bad_max;        /* answers in a row that are not good, then it is wedged [3] */
};

struct en_mps_core {
	struct en_mps_times t;
	enum en_mps_state state;
	bool wanted;
	int64_t since_ms;    /* in this state */
	int64_t deadline_ms; /* of this state; INT64_MAX = none */
	int64_t ask_ms;      /* next question; INT64_MAX = none */
	int attempt;         /* starts in a row that did not become stable */
	int bad;             /* answers in a row that were not good */
	bool bad_is_fault;   /* one of them was a fault */
	uint64_t starts;     /* processes started */
	uint64_t readies;    /* times it became ready: the generation of its namespaces */
};

void en_mps_core_init(struct en_mps_core *c, const struct en_mps_times *t, int64_t now_ms);

/* Takes an event and returns what is to be done now. Events that mean nothing in a state are ignored. */
enum en_mps_action en_mps_core_event(struct en_mps_core *c, enum en_mps_event ev, int64_t now_ms);

/* When EN_MPS_EV_TIME is due. */
int64_t en_mps_core_due(const struct en_mps_core *c);

/* May containers be started on it? Ready, or sick with a single missed answer. */
bool en_mps_core_usable(const struct en_mps_core *c);

const char *en_mps_state_name(enum en_mps_state s);
const char *en_mps_event_name(enum en_mps_event e);

#endif
