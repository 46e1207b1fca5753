/* Subcommands of tessera-replay. Each takes what follows its name and returns the exit status. */
#ifndef TESSERA_REPLAY_COMMAND_H
#define TESSERA_REPLAY_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "policy/policy.h"
#include "replay/map.h"
#include "replay/options.h"
#include "replay/order.h"
#include "replay/trace.h"

enum rp_exit {
	RP_EXIT_OK = 0,
	RP_EXIT_FAILED = 1, /* output, memory, network, or a bug of ours */
	RP_EXIT_INPUT = 2,  /* bad option or bad file */
};

struct rp_command {
	const char *name;
	const char *usage; /* the options in one line */
	const char *summary;
	int (*run)(const struct rp_command *self, int argc, char **argv);
};

/* The i-th command, NULL past the end. */
const struct rp_command *rp_command_at(size_t i);

int rp_cmd_run(const struct rp_command *self, int argc, char **argv);
int rp_cmd_plan(const struct rp_command *self, int argc, char **argv);
int rp_cmd_whatif(const struct rp_command *self, int argc, char **argv);
int rp_cmd_defrag(const struct rp_command *self, int argc, char **argv);
int rp_cmd_sizing(const struct rp_command *self, int argc, char **argv);
int rp_cmd_drive(const struct rp_command *self, int argc, char **argv);
int rp_cmd_map(const struct rp_command *self, int argc, char **argv);
int rp_cmd_cluster(const struct rp_command *self, int argc, char **argv);
int rp_cmd_generate(const struct rp_command *self, int argc, char **argv);

/* Parses the command's options; prints the help or the message itself. true: go on; false: return
 * *ret_status. */
bool rp_command_options(const struct rp_command *self, const struct rp_option *options,
			size_t count, int argc, char **argv, int *ret_status);
/* Prints the message to stderr and returns the status that belongs to the code. */
int rp_command_failed(int code, const struct err *err);
/* After the output was made: prints what went wrong with it and returns the exit status. */
int rp_command_end(int rc, struct err *err);
/* Writes b to the file, "-" = standard output. ERR_NOMEM where b failed; ERR_IO. */
int rp_write_file(const char *path, struct buf *b, struct err *err);
/* Columns of the screen that standard output goes to: COLUMNS, or what the terminal says; 0 = it goes to no
 * terminal, or that is not known. */
unsigned rp_terminal_width(void);
/* Note callback: a warning on stderr unless *(bool *)quiet. */
void rp_command_note(void *quiet, const char *text);

/* What run and drive have in common. */
struct rp_inputs {
	const char *nodes_path, *pods_path, *order_path, *seeds_text;
	const char *pods_format, *nodes_format; /* maps; NULL = openb */
	struct rp_map pod_map, node_map;        /* filled by rp_inputs_load() */
	int64_t inflate_nano; /* RP_INFLATE_DEFAULT: 1.3 for tables, none for a live cluster */
	bool quiet;
};
#define RP_INFLATE_DEFAULT (-1)
#define RP_SEEDS_MAX 1000

/* The trace. On failure the message has been printed and *ret_status is set. */
bool rp_inputs_load(struct rp_inputs *in, struct rp_trace *t, int *ret_status);
/* The arrivals for one seed, from the order file where one is given. */
int rp_inputs_order(const struct rp_inputs *in, const struct rp_trace *t, uint64_t seed,
		    struct rp_order *ret, struct err *err);
/* "42" or "42,43,50-59"; the default seed where text is NULL. ERR_INVALID, ERR_RANGE. */
int rp_seeds_parse(const char *text, uint64_t seeds[RP_SEEDS_MAX], size_t *ret_count,
		   struct err *err);

/* All policies, as --help lists them; a test compares with policy/table.c. */
#define RP_POLICY_NAMES                                                                            \
	"ca-fgd, fgd, bid-price, bestfit, firstfit, packing, clustering, dotprod, random, spread"

/* "fgd,bestfit", "all"; the default policy where text is NULL. ERR_INVALID, ERR_RANGE. */
#define RP_POLICIES_MAX 64
int rp_policies_parse(const char *text, const struct po_policy *list[RP_POLICIES_MAX],
		      size_t *count, struct err *err);

#endif
