/* An nvidia-cuda-mps-control for tests: built as build/<variant>/nvidia-cuda-mps-control, daemon and
 * front end, protocols 2 and 3 as documented and as measured on releases 535 and 580, quirks included: complaints
 * on standard output with status 0, sockets left behind, "quit" on standard input heard by protocol 3
 * only, end of standard input ends it (protocol 3). nvidia-cuda-mps-server beside it is the same program
 * and only waits.
 *
 * What is out of the ordinary stands in the file that TESSERA_FAKE_MPS names (read at every request):
 *
 *   protocol 2             the program is an old one: "-p 3" is not understood
 *   start_fails            the daemon ends at once with status 1
 *   gpus GPU-a,GPU-b       GPUs of the node: a server allowed another one is made and disappears
 *   status FAULT           of the server [Ready, ACTIVE]
 *   no_server              the server is not listed
 *   hang WORD              requests that hold the word get no answer
 *   error_status 1         exit status of the front end where protocol 3 complains [0]
 *   ignore_quit            the daemon does not end when asked
 *   refuse terminate       clients cannot be ended; protocol 3 does not say so
 *   wrong_cap              "namespace set" has no effect, and the tool does not say so
 *   short_rows             "namespace list" has five columns
 *   underscore             fields are spelled pipe_directory
 *   client pid=51023 server=shared ns=default device=0 cmd=python~train.py     '~' stands for a blank
 *   legacy_server 4711     the pid of a server, protocol 2
 *   other_ns NAME PERCENT  a namespace that somebody else made
 */
#ifndef TESSERA_TEST_FAKE_MPS_H
#define TESSERA_TEST_FAKE_MPS_H

#include <stdbool.h>
#include <stddef.h>

#define FAKE_MPS_ENV "TESSERA_FAKE_MPS"
#define FAKE_NAMES_MAX 128

struct fake_namespace {
	char name[65];
	int centipercent; /* -1 = none */
};

struct fake_daemon {
	const char *pipe_dir;
	bool v3;
	int server_pid; /* 0 = none */
	char devices[256];
	int v2_centipercent;
	char v2_limits[4][2][64]; /* device, value as read back */
	size_t ns_count;
	struct fake_namespace ns[FAKE_NAMES_MAX];
	size_t ended_count;
	long ended[FAKE_NAMES_MAX]; /* clients that were terminated */
	bool quit;
	bool silent; /* this request gets no answer */
};

/* The nth line that begins with that word, after the word; NULL past the end. Valid until the next
 * call. */
const char *fake_script(const char *word, size_t nth);
/* A word's "key=value" of such a line into ret, '~' as blank; "" where it is not there. */
void fake_value(const char *line, const char *key, char *ret, size_t cap);
/* Clients of the script that were not terminated: the nth one's line, NULL past the end. */
const char *fake_client(const struct fake_daemon *d, size_t nth);

/* Answers one command; text goes to out. v3 returns the exit status. */
void fake_v2(struct fake_daemon *d, char *command, char *out, size_t cap);
int fake_v3(struct fake_daemon *d, char **args, size_t count, char *out, size_t cap);
/* Adds to out. */
void fake_print(char *out, size_t cap, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
