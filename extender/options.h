/* The options of tessera-extender: one table from which the parser, --help and OPTIONS.md come. */
#ifndef TESSERA_EXTENDER_OPTIONS_H
#define TESSERA_EXTENDER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/version.h"
#include "extender/admit.h"

#define EX_VERSION TESSERA_VERSION
#define EX_IDENTITY_MAX 199 /* bytes; two that are cut to the same would both lead */

struct ex_options_file;

struct ex_options {
	/* Strings belong to argv, the environment, the table or file. "" = not given. */
	const char *cluster, *listen, *journal, *policy, *prefix, *ties, *log_level;
	const char *kubeconfig, *context, *lease_namespace, *lease_name, *identity;
	const char *config, *tls_cert, *tls_key, *tls_client_ca;
	const char *set_scheduler, *scheduler_name, *privileged;
	int64_t threads, max_body, reserve_mib, clients_max, overcommit_permille;
	int64_t popularity, seed, pods_cache, nomination_s, score_rest;
	int64_t lease_s, renew_s, retry_s, bind_ms, silence_s;
	bool journal_sync, hami, mig_isolation, mig_switch, cdi;
	bool in_cluster, leader_elect, node_totals;
	bool check_config, help, version;
	struct ex_options_file *file; /* of --config; NULL: none */
};

/* Reads the command line over the environment (TESSERA_...) over the file of --config over the
 * defaults. ERR_INVALID,
 * ERR_RANGE: the message names option and value; --help and --version are taken before anything is
 * checked. getenv_fn NULL: getenv. */
int ex_options_parse(int argc, char *const *argv, const char *(*getenv_fn)(const char *name),
		     struct ex_options *ret, struct err *err);

/* enum ex_set_scheduler; -1: the value is no word of it, which ex_options_parse() refuses. */
int ex_options_set_scheduler(const struct ex_options *o);

void ex_options_fini(struct ex_options *o);

/* After a reload: calls fn with the name of each option that differs, and whether it can be changed
 * while serving. */
void ex_options_compare(const struct ex_options *a, const struct ex_options *b,
			void (*fn)(void *ctx, const char *name, bool live), void *ctx);

/* The text of --help, and the table that OPTIONS.md holds. */
void ex_options_help(struct buf *b);
void ex_options_markdown(struct buf *b);

#endif
