/* Shared by the files of the plugin; not for others. */
#ifndef TESSERA_ENFORCER_NRI_PLUGIN_INTERNAL_H
#define TESSERA_ENFORCER_NRI_PLUGIN_INTERNAL_H

#include <pthread.h>

#include "enforcer/nri_plugin.h"

#define SYNC_PARTS_MAX 64

/* A copy of the node that lives as long as somebody uses it. */
struct plugin_node {
	struct en_node node; /* its figures of use are for the holder of the plugin's lock */
	unsigned refs;       /* under the plugin's lock */
	char *name, *mps_why;
	struct plugin_gpu {
		char *product;
		struct en_mig_instance *instances;
	} * gpus; /* what node.gpus[] points to */
};

/* Parts of a Synchronize. */
struct plugin_parts {
	size_t count;
	struct en_nri_request *at[SYNC_PARTS_MAX];
};

struct en_plugin {
	struct en_plugin_options o;
	struct en_agent_ops agent; /* all NULL where none was given */
	char mount[EN_CGROUP_CAP]; /* of cgroup v2 */

	pthread_mutex_t lock;     /* of all below */
	struct plugin_node *node; /* NULL: not known yet */
	struct en_ledger *ledger;
	struct en_plugin_stats stats;

	pthread_mutex_t
		sync_lock; /* of the next; taken before the other, and held while reports go out */
	struct plugin_parts waiting; /* of a Synchronize at which no GPU was known */

	/* of the thread that handles calls: */
	struct plugin_parts parts; /* of a Synchronize that goes on */
};

/* Refused, however it came about. */
void plugin_fail(struct en_nri_reply *ret, enum en_ttrpc_code code, const char *text);
void plugin_report(struct en_plugin *p, enum en_report_kind kind, const struct st_pod_spec *pod,
		   const char *id, const char *container, const char *text);
void plugin_report_holding(struct en_plugin *p, enum en_report_kind kind,
			   const struct en_holding *h, const char *text);

/* A container that exists without what it should have. */
void plugin_report_slipped(struct en_plugin *p, const struct st_pod_spec *pod,
			   const struct en_nri_container *c, const char *text);

/* Puts allocations from elsewhere in the place of the pods' own keys. ERR_NOMEM. */
int plugin_allocate(struct en_plugin *p, struct en_nri_request *r, struct err *err);
/* Takes away what is still set on the cgroup of a container that is gone, where that still exists. */
void plugin_limits_clear(struct en_plugin *p, const struct en_holding *h);

/* The node for use without the lock; NULL: none is known. */
struct plugin_node *plugin_node_get(struct en_plugin *p);
void plugin_node_put(struct en_plugin *p, struct plugin_node *n);
void plugin_node_release(struct plugin_node *n); /* the same under the lock; NULL is fine */

/* Is it known which GPUs it has? Where the driver does not answer, it has none. */
bool plugin_node_known(const struct plugin_node *n);

/* A plan against what others hold in l. exists: the container is there already, so it does not matter
 * whether MPS is ready now. Under the lock. */
int plugin_plan(struct en_plugin *p, struct plugin_node *n, struct en_ledger *l,
		const struct st_pod_spec *pod, const char *container, bool exists,
		struct en_plan *ret, struct err *err);
/* The row for a plan with a grant. Its strings are those of pod and c. */
void plugin_holding(const struct plugin_node *n, const struct en_plan *plan,
		    const struct st_pod_spec *pod, const struct en_nri_container *c,
		    struct en_holding *ret);
/* Has the container what the plan gives or hides? Where it has a pipe directory of its own, that one is
 * taken over into the plan. ERR_CONFLICT says what is missing. */
int plugin_check_container(struct en_plugin *p, const struct plugin_node *n, struct en_plan *plan,
			   const struct en_nri_container *c, struct err *err);

/* Finds the cgroup of a started container, where it is not known yet, and makes its limits those of the row.
 * *ret_repaired: they were not. h is the caller's copy; without the lock. */
int plugin_limits_ensure(struct en_plugin *p, struct en_holding *h, bool *ret_repaired,
			 struct err *err);

/* Copies of all rows; each and the array are the caller's. Rows there is no memory for are left out. */
struct en_holding **plugin_rows(struct en_plugin *p, size_t *ret_count);

void plugin_synchronize(struct en_plugin *p, struct en_nri_request *take_r,
			struct en_nri_reply *ret);
/* Containers that were told of while no GPU was known: looked at now, where one is; that one is gone. */
int plugin_waiting_take(struct en_plugin *p, struct err *err);
void plugin_waiting_gone(struct en_plugin *p, const char *id);
void plugin_waiting_free(struct en_plugin *p);
void plugin_start(struct en_plugin *p, const struct en_nri_request *r, struct en_nri_reply *ret);
void plugin_stop(struct en_plugin *p, const struct en_nri_request *r);

#endif
