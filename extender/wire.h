/* The bodies that go back to a kube-scheduler, and the small ones that come from it. */
#ifndef TESSERA_EXTENDER_WIRE_H
#define TESSERA_EXTENDER_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "binpack/binpack.h"
#include "extender/scan.h"

/* What was found for a node: a verdict of the placer, or one of these. */
enum ex_code {
	EX_OK = BP_OK,
	EX_NO_NODE = BP_NO_NODE,
	/* eviction would not help */
	EX_REQUEST = BP_VERDICT_COUNT, /* the pod's request is wrong; the text is in ex_verdicts */
	EX_BOUND,                      /* the pod is bound to another node */
	EX_NODE_OBJECT,                /* a node object that cannot be read */
	/* eviction might help */
	EX_NOMINATED, /* the room is kept for a nominated pod */
	EX_REPEATED,  /* listed before: left out */
	EX_CODE_COUNT,
};

/* Short, without numbers; "" for EX_OK and EX_REPEATED. */
const char *ex_code_text(enum ex_code code);
/* A name for metrics: "ok", "memory", ... */
const char *ex_code_name(enum ex_code code);
/* FailedNodes (true) or FailedAndUnresolvableNodes. */
bool ex_code_resolvable(enum ex_code code);

/* An answer for each of a list of names. Memory is kept from request to request. */
struct ex_verdicts {
	size_t count, cap;
	uint8_t *code;  /* enum ex_code */
	uint64_t *key;  /* orders the nodes that are EX_OK: the largest is the best */
	uint32_t *node; /* id in the cluster; ST_NONE */
	uint32_t *text; /* offset in texts of this node's own text, a JSON string; 0 = none */
	struct buf texts;
};
void ex_verdicts_fini(struct ex_verdicts *v);
/* count answers EX_NO_NODE without texts. ERR_NOMEM. */
int ex_verdicts_reset(struct ex_verdicts *v, size_t count, struct err *err);
/* Gives the node a text of its own. */
void ex_verdicts_set_text(struct ex_verdicts *v, size_t i, const char *text);

/* ExtenderFilterResult; items NULL: cache mode, NodeNames in the order asked. Else nodes mode: the
 * node objects that pass, byte for byte as they came. A failed allocation shows in buf_ok(). */
void ex_wire_filter(struct buf *out, const struct ex_names *names, const struct ex_items *items,
		    const struct ex_verdicts *v);
void ex_wire_filter_error(struct buf *out, const char *text);

/* HostPriorityList: a bare array of nodes that are EX_OK. The best has 10; the others have 0..rest by where
 * their key lies between the smallest and the second best. Those with 0 are left out, which means 0. */
void ex_wire_prioritize(struct buf *out, const struct ex_names *names, const struct ex_verdicts *v,
			unsigned rest);

/* ExtenderBindingResult; "" is success. */
void ex_wire_bind(struct buf *out, const char *error);

/* ExtenderBindingArgs. Strings are malloc'ed copies. ERR_INVALID names the field. */
struct ex_bind_args {
	char *name, *ns, *uid, *node;
};
void ex_bind_args_fini(struct ex_bind_args *a);
int ex_wire_bind_parse(const char *text, size_t len, struct ex_bind_args *ret, struct err *err);

/* The victims proposed for one node, and what became of them. */
struct ex_victims {
	char *node;
	char **uids;
	size_t count;
	int64_t pdb_violations;
	size_t chosen_count; /* 0: the node is left out */
	char **chosen;       /* uids, malloc'ed */
};
struct ex_preemption {
	size_t count;
	struct ex_victims *v;
};
void ex_preemption_fini(struct ex_preemption *p);
/* NodeNameToMetaVictims or NodeNameToVictims, as sent. ERR_INVALID names the node; ERR_NOMEM. */
int ex_wire_preempt_parse(const struct ex_body *body, struct ex_preemption *ret, struct err *err);
/* ExtenderPreemptionResult, in the Meta form. error "" or a text that a log will show. */
void ex_wire_preempt(struct buf *out, const struct ex_preemption *p, const char *error);

#endif
