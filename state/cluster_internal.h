/* Of state/ only: what lies behind struct st_cluster.
 *
 * What a GPU shows (struct st_gpu) is derived, never set by hand: from what was reported about it
 * (struct gpu_report) and what pods hold of it (struct gpu_book). st_gpu_derive() is the one place
 * where that happens. */
#ifndef TESSERA_STATE_CLUSTER_INTERNAL_H
#define TESSERA_STATE_CLUSTER_INTERNAL_H

#include "base/hash.h"
#include "state/cluster.h"

#define ST_LOG_CAP_MIN 1024

/* CPU and memory of pods and nodes are held within +-this, so that sums of millions are exact. */
#define ST_HOST_MAX (INT64_C(1) << 42)

/* What the pods of a node hold of one GPU. */
struct gpu_book {
	int32_t request_mib;                        /* of shares */
	int32_t compute_nano;                       /* of shares, in sm-sharing only */
	int64_t limit_mib;                          /* of shares */
	uint64_t mig;                               /* instances, under mig_geometry */
	const struct st_mig_geometry *mig_geometry; /* set with the first instance */
	uint16_t holders;                           /* grants on it; an instance each for MIG */
	uint16_t clients;
	uint16_t memory_bound;
	uint8_t mode; /* ST_MODE_FREE exactly where holders is 0 */
};

/* What the node says about one GPU. */
struct gpu_report {
	const struct st_mig_geometry *geometry; /* usable with MIG on; NULL = unknown */
	uint64_t instances;                     /* of others, unless booked; under geometry */
	char *foreign;                          /* NULL, or who holds it */
	bool gone;
	bool unhealthy;
	bool mig_enabled;
	bool mig_switchable;
	uint64_t open;    /* as st_gpu.mig_open */
	bool mig_unknown; /* an instance is present whose place the geometry does not know */
	bool shrunk;      /* memory fell below what is booked: free_mib may be negative */
};

struct gpu_slot {
	struct gpu_book book;
	struct gpu_report report;
	struct node_slot *node; /* that this is of */
	struct uuid_slot *uuid; /* NULL: a name that only its node knows */
	struct gpu_slot *twin;  /* the next of that UUID, on another node */
};

/* Every GPU of one UUID. */
struct uuid_slot {
	UT_hash_handle hh; /* in st_cluster.uuids */
	struct st_cluster *c;
	struct gpu_slot *first;
	char text[];
};

struct pod_slot {
	struct st_pod pub;
	UT_hash_handle hh;            /* in st_cluster.pods, key uid, in the order they came */
	struct pod_slot *prev, *next; /* on the node, in the order they came */
	struct st_grant *more;        /* grants when they outgrew the tail, else NULL */
	uint32_t whole_gpus;          /* of a foreign pod */
	uint8_t stored;               /* grants stored; fenced: what it wants, else what it holds */
	uint8_t tail_cap;             /* grants that fit in the tail */
	struct st_grant tail[];       /* then the strings */
};

struct node_slot {
	struct st_node pub;
	UT_hash_handle hh;      /* in st_cluster.by_name */
	UT_hash_handle hh_rank; /* in st_cluster.by_rank */
	struct pod_slot *first, *last;
	uint32_t pod_count;
	uint32_t assumed; /* foreign pods that hold assumed GPUs */
	int64_t cpu_used, mem_used;
	struct gpu_slot *gpus; /* pub.gpu_count of them */
	void *block;           /* the memory of gpus, pub.gpus and their strings */
};

struct geometry_slot {
	struct st_mig_geometry geometry; /* padding zeroed: the whole is the key */
	UT_hash_handle hh;
};

/* Which built-in geometry a product of that memory has. */
struct product_slot {
	uint64_t key; /* product id and MiB */
	const struct st_mig_geometry *geometry;
	UT_hash_handle hh;
};

struct st_cluster {
	struct st_config cfg;
	struct strpool *products;
	struct node_slot **nodes;
	uint32_t node_count, node_cap;
	struct node_slot *by_name, *by_rank;
	struct pod_slot *pods;
	struct uuid_slot *uuids;
	struct geometry_slot *geometries;
	struct product_slot *product_geometries;
	uint32_t *log; /* a ring, log_cap a power of two */
	uint64_t log_cap, log_begin, log_end;
};

/* ---- cluster.c ---- */

static inline struct node_slot *st_node_slot(const struct st_cluster *c, uint32_t id)
{
	return id < c->node_count ? c->nodes[id] : NULL;
}

struct pod_slot *st_pod_slot_find(const struct st_cluster *c, const char *uid);
/* The node changed: version and change log. Never fails. */
void st_node_touch(struct st_cluster *c, struct node_slot *n);
/* Room in the log for that many nodes. ERR_NOMEM. */
int st_log_grow(struct st_cluster *c, uint32_t node_count);
int64_t st_host_clamp(int64_t v);

/* ---- cluster_gpu.c ---- */

/* How strictly a decision is looked at. */
enum book_rules {
	BOOK_NEW,      /* all bounds: something new */
	BOOK_OBSERVED, /* it exists already: only what means that a GPU is given twice */
};

/* Writes to books[] (gpu_count copies) what the node's GPUs would hold with the grants on top.
 * 0, ERR_CONFLICT, ERR_NO_ROOM; books[] is undefined after an error. */
int st_grants_try(const struct st_cluster *c, const struct node_slot *n,
		  const struct st_grant *grants, uint8_t count, bool memory_bound,
		  enum book_rules rules, struct gpu_book books[ST_GPUS_MAX], struct err *err);
/* Makes such books the node's. */
void st_books_commit(struct node_slot *n, const struct gpu_book books[ST_GPUS_MAX]);
/* Takes grants that are booked off again. */
void st_grants_unbook(struct node_slot *n, const struct st_grant *grants, uint8_t count,
		      bool memory_bound);
/* What the GPU shows, from its report and its book. */
void st_gpu_derive(struct st_gpu *g, struct gpu_slot *s);

/* ---- cluster_pod.c ---- */

int st_pod_ident_check(const struct st_pod_ident *id, struct err *err);
/* A record with room for cap grants that the table of pods knows and no node does. NULL: no
 * memory. */
struct pod_slot *st_pod_slot_new(struct st_cluster *c, const struct st_pod_ident *id, uint8_t cap);
struct st_grant *st_pod_grants(struct pod_slot *p); /* the stored ones */
void st_pod_ident_put(struct pod_slot *p, const struct st_pod_ident *id);
void st_host_add(struct node_slot *n, const struct pod_slot *p, int sign);
void st_pod_link(struct node_slot *n, struct pod_slot *p);
/* Off the node, and all it held is free. */
void st_pod_detach(struct node_slot *n, struct pod_slot *p);
/* The pod holds what is stored of it: the books were committed. */
void st_pod_hold(struct node_slot *n, struct pod_slot *p);
/* The pod holds nothing more; what it wants stays stored. */
void st_pod_drop(struct node_slot *n, struct pod_slot *p);
void st_pod_set_fenced(struct node_slot *n, struct pod_slot *p, bool fenced);
/* Room may have appeared on the node, and it may be empty now. */
void st_node_after_release(struct st_cluster *c, struct node_slot *n);

/* ---- cluster_observe.c ---- */

/* Books what the node's fenced pods want, as far as there is room now. Call after room appeared. */
void st_node_settle(struct st_cluster *c, struct node_slot *n);
/* Takes the assumed GPUs off again; st_node_settle() deals them out anew. */
void st_node_undeal(struct node_slot *n);
/* GPU indices that grants, booked or wanted, refer to: one bit a GPU. */
uint32_t st_node_pinned(const struct node_slot *n);

/* ---- cluster_mig.c ---- */

/* Fills geometry, instances, open and mig_unknown of *r from a description. present: the geometry that the
 * GPU has now, kept where it is the same. ERR_INVALID: instances that cannot be; ERR_NOMEM. */
int st_report_mig(struct st_cluster *c, const struct st_gpu_spec *g, uint32_t product,
		  const struct st_mig_geometry *present, struct gpu_report *r, struct err *err);

/* ---- cluster_twin.c ---- */

/* The slot of a UUID, made where there is none; st_uuid_drop() where it is not used then. ERR_NOMEM. */
int st_uuid_intern(struct st_cluster *c, const char *uuid, struct uuid_slot **ret, struct err *err);
/* Frees it where no GPU is of it; NULL is allowed. */
void st_uuid_drop(struct uuid_slot *u);
/* Puts a GPU whose node and uuid are set among those of its UUID, and takes it out: the others hear of
 * the latter, of the former by st_uuid_tell() once all of its node is known. */
void st_gpu_link(struct gpu_slot *s);
void st_gpu_unlink(struct gpu_slot *s);
/* Another node's GPU of the same UUID that may be given away there or was; NULL: none. */
const struct gpu_slot *st_gpu_twin(const struct gpu_slot *s);
/* What the GPU of that UUID on a node claims has changed: the others are derived anew. */
void st_uuid_tell(const struct uuid_slot *u, const struct node_slot *from);

/* ---- cluster_node.c ---- */

/* Gives the GPUs of a removed node back once no pod is left on it, else those at the end of the
 * array that are gone and that nothing refers to. */
void st_node_trim(struct node_slot *n);

#endif
