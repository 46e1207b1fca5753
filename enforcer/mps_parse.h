/* Reads what nvidia-cuda-mps-control prints, protocols 2 and 3. The texts come from a tool whose output is
 * documented by samples only, so rows are read leniently: further columns are ignored, blanks around
 * fields are dropped, and a row that cannot be read makes the whole answer an error rather than being
 * skipped. Rows beyond cap are counted in *ret_count but not stored. text needs no NUL. */
#ifndef TESSERA_ENFORCER_MPS_PARSE_H
#define TESSERA_ENFORCER_MPS_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define EN_MPS_NAME_CAP 65 /* names are at most 64 of [a-z0-9_] */
#define EN_MPS_DIR_CAP 108 /* a unix socket's path */

/* `server list --format=csv,noheader`: training,1000,48201,Ready,/run/nvidia-mps/training,GPU-..,- */
struct en_mps_server {
	char name[EN_MPS_NAME_CAP];
	int64_t pid; /* 0 where it is not a number */
	char status[32];
	char dir[EN_MPS_DIR_CAP]; /* "" = not told */
};
int mps_parse_servers(const char *text, size_t len, struct en_mps_server *ret, size_t cap,
		      size_t *ret_count, struct err *err);

/* `namespace list --format=csv,noheader`: name, server, server-status, pinned limit, percentage,
 * priority, directory */
struct en_mps_namespace {
	char name[EN_MPS_NAME_CAP], server[EN_MPS_NAME_CAP];
	int32_t centipercent;     /* 50.00 is 5000; -1 = none ("-", empty) */
	char dir[EN_MPS_DIR_CAP]; /* "" = not told */
};
int mps_parse_namespaces(const char *text, size_t len, struct en_mps_namespace *ret, size_t cap,
			 size_t *ret_count, struct err *err);

/* `client list --format=csv,noheader`: 51023,training,0,default,python train.py, or with the device's UUID
 * and "training/default (0)" as namespace. The command is the rest of the line and may hold commas. It is
 * a tenant's text: lines behind the first that are no rows are taken for a part of it. */
struct en_mps_client {
	int64_t pid;
	char server[EN_MPS_NAME_CAP], ns[EN_MPS_NAME_CAP];
	char device[97];  /* ordinal or UUID */
	char command[64]; /* cut */
};
int mps_parse_clients(const char *text, size_t len, struct en_mps_client *ret, size_t cap,
		      size_t *ret_count, struct err *err);

/* Protocol 2: one number a line (get_server_list, get_client_list). */
int mps_parse_pids(const char *text, size_t len, int64_t *ret, size_t cap, size_t *ret_count,
		   struct err *err);

/* "40.0", "50.00", "100" to hundredths, rounded down; the whole text but for white space around it.
 * ERR_INVALID; ERR_RANGE over 100. */
int mps_parse_percent(const char *text, size_t len, int32_t *ret_centipercent, struct err *err);

/* One value, as `<module> get` prints it: without white space around it, one line. ERR_INVALID: empty, or
 * more than one line. ERR_TOO_LARGE. */
int mps_parse_value(const char *text, size_t len, char *ret, size_t cap, struct err *err);

/* Does the tool complain? Errors come on standard output with exit status 0. */
bool mps_is_complaint(const char *text, size_t len);

/* What a server's status means. */
enum en_mps_status_kind {
	EN_MPS_STATUS_READY,
	EN_MPS_STATUS_WAIT, /* "INITIALIZING" */
	EN_MPS_STATUS_FAULT,
	EN_MPS_STATUS_UNKNOWN, /* a word nobody has documented */
};
/* accepted: further words that count as ready, joined by ','; may be NULL. Case does not matter. */
enum en_mps_status_kind mps_status_kind(const char *status, const char *accepted);

#endif
