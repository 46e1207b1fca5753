/* See fake_mps.h. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "test/lib/fake_mps.h"

#define TEXT_MAX 65536
#define ARGS_MAX 16
#define SEPARATOR "\x1f" /* between arguments on the wire between the two halves of this program */

/* ---- the script ---- */

const char *fake_script(const char *word, size_t nth)
{
	static char line[1024];
	const char *path = getenv(FAKE_MPS_ENV);
	FILE *f = path != NULL ? fopen(path, "r") : NULL;
	size_t len = strlen(word);

	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, word, len) == 0 && (line[len] == ' ' || line[len] == '\0') &&
		    nth-- == 0) {
			fclose(f);
			return line[len] == ' ' ? line + len + 1 : line + len;
		}
	}
	if (f != NULL)
		fclose(f);
	return NULL;
}

void fake_value(const char *line, const char *key, char *ret, size_t cap)
{
	size_t len = strlen(key), n = 0;

	ret[0] = '\0';
	for (const char *p = line; p != NULL && *p != '\0'; p += strcspn(p, " "), p += *p == ' ') {
		if (strncmp(p, key, len) != 0 || p[len] != '=')
			continue;
		for (p += len + 1; *p != '\0' && *p != ' ' && n < cap - 1; p++)
			ret[n++] = *p == '~' ? ' ' : *p;
		ret[n] = '\0';
		return;
	}
}

const char *fake_client(const struct fake_daemon *d, size_t nth)
{
	const char *line;
	char pid[32];

	for (size_t i = 0; (line = fake_script("client", i)) != NULL; i++) {
		bool ended = false;

		fake_value(line, "pid", pid, sizeof(pid));
		for (size_t k = 0; k < d->ended_count; k++)
			ended = ended || d->ended[k] == strtol(pid, NULL, 10);
		if (!ended && nth-- == 0)
			return line;
	}
	return NULL;
}

void fake_print(char *out, size_t cap, const char *fmt, ...)
{
	size_t len = strlen(out);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(out + len, cap - len, fmt, ap);
	va_end(ap);
}

static const char *pipe_dir(void)
{
	const char *dir = getenv("CUDA_MPS_PIPE_DIRECTORY");

	return dir != NULL ? dir : "/tmp/nvidia-mps";
}

/* ---- front end ---- */

static int connect_daemon(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%.90s/control", pipe_dir());
	if (connect(fd, (const struct sockaddr *)&a, sizeof(a)) != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Sends a request and prints the answer; its first byte is the exit status. */
static int ask(int fd, const char *request)
{
	char answer[TEXT_MAX], status = '0';
	ssize_t got;
	bool first = true;

	if (write(fd, request, strlen(request)) < 0 || shutdown(fd, SHUT_WR) != 0)
		return 1;
	while ((got = read(fd, answer, sizeof(answer))) > 0) {
		if (first)
			status = answer[0];
		fwrite(answer + first, 1, (size_t)got - first, stdout);
		first = false;
	}
	close(fd);
	return status - '0';
}

static int front_end(bool v3, char **args, int count)
{
	char request[TEXT_MAX] = "";
	int fd = connect_daemon();

	if (fd < 0) { /* before its standard input is looked at */
		fprintf(stderr, "Cannot find MPS control daemon process\n");
		return 1;
	}
	if (v3) {
		request[0] = '3';
		for (int i = 0; i < count; i++)
			fake_print(request, sizeof(request), "%s%s", i > 0 ? SEPARATOR : "",
				   args[i]);
	} else {
		request[0] = '2';
		request[fread(request + 1, 1, sizeof(request) - 2, stdin) + 1] = '\0';
	}
	return ask(fd, request);
}

/* ---- daemon ---- */

static void make_file(const char *name, mode_t type)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", pipe_dir(), name);
	unlink(path);
	(void)mknod(path, type | 0666, 0);
}

static int listen_at(const char *name)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%.80s/%s", pipe_dir(), name);
	unlink(a.sun_path);
	if (bind(fd, (const struct sockaddr *)&a, sizeof(a)) != 0 || listen(fd, 64) != 0) {
		close(fd);
		return -1;
	}
	chmod(a.sun_path, 0666);
	return fd;
}

static bool known_key(const char *line)
{
	static const char *const starts[] = {"#",
					     "[servers.",
					     "[features.memacct]",
					     "[features.context-share]",
					     "schema_version = \"1.0\"",
					     "enabled = ",
					     "audit_log = ",
					     "default_socket = \"",
					     "allowed_devices = \""};

	if (line[0] == '\0')
		return true;
	for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
		if (strncmp(line, starts[i], strlen(starts[i])) == 0)
			return true;
	}
	return false;
}

/* False: a key that nobody knows. */
static bool apply(struct fake_daemon *d, const char *path)
{
	char line[512];
	FILE *f = fopen(path, "r");
	bool ok = f != NULL;

	while (ok && fgets(line, sizeof(line), f) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		ok = known_key(line);
		if (sscanf(line, "allowed_devices = \"%255[^\"]\"", d->devices) == 1)
			continue;
	}
	if (f != NULL)
		fclose(f);
	return ok;
}

static void start_server(struct fake_daemon *d)
{
	char self[512], *slash;
	int started[2];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 32);

	if (len < 0)
		return;
	self[len] = '\0';
	slash = strrchr(self, '/');
	snprintf(slash, 32, "/nvidia-cuda-mps-server");
	if (pipe2(started, O_CLOEXEC) != 0)
		return;
	d->server_pid = (int)fork();
	if (d->server_pid == 0) {
		execl(self, self, (char *)NULL);
		_exit(1);
	}
	close(started[1]);
	(void)!read(started[0], self, 1); /* until it is the other program */
	close(started[0]);
}

static void answer(struct fake_daemon *d, int fd)
{
	static char out[TEXT_MAX];
	char request[TEXT_MAX] = "", *rest = request + 1, *args[ARGS_MAX], *command;
	size_t len = 0, count = 0;
	ssize_t got;
	const char *word;
	int status = 0;

	while (len < sizeof(request) - 1 &&
	       (got = read(fd, request + len, sizeof(request) - 1 - len)) > 0)
		len += (size_t)got;
	request[len] = '\0';
	for (size_t i = 0; (word = fake_script("hang", i)) != NULL; i++) {
		if (word[0] != '\0' && strstr(request, word) != NULL)
			return; /* and the connection stays open */
	}
	out[0] = '\0';
	if (request[0] == '2') {
		while ((command = strsep(&rest, "\n")) != NULL)
			fake_v2(d, command, out, sizeof(out));
		if (d->silent) {
			d->silent = false;
			return;
		}
	} else if (request[0] == '3' && d->v3) {
		while (count < ARGS_MAX && (args[count] = strsep(&rest, SEPARATOR)) != NULL)
			count++;
		status = fake_v3(d, args, count, out, sizeof(out));
	} else if (len > 0) {
		fake_print(out, sizeof(out), "Unknown command \"%s\"\n", request + 1);
	}
	if (len > 0) {
		dprintf(fd, "%d", status);
		(void)!write(fd, out, strlen(out));
	}
	close(fd);
}

/* True: it is to end. */
static bool read_stdin(void)
{
	char text[256];
	ssize_t got = read(0, text, sizeof(text) - 1);

	if (got < 0)
		return errno != EINTR && errno != EAGAIN;
	text[got] = '\0';
	return got == 0 || (strstr(text, "quit") != NULL && fake_script("ignore_quit", 0) == NULL);
}

static void serve(struct fake_daemon *d, int fd)
{
	while (!d->quit) {
		/* The legacy daemon does not look at its standard input in the foreground. */
		struct pollfd p[2] = {{.fd = fd, .events = POLLIN},
				      {.fd = d->v3 ? 0 : -1, .events = POLLIN}};

		if (poll(p, 2, -1) < 0)
			continue;
		if (p[0].revents != 0) {
			int c = accept4(fd, NULL, NULL, SOCK_CLOEXEC);

			if (c >= 0)
				answer(d, c);
		}
		if (p[1].revents != 0 && read_stdin())
			d->quit = true;
		if (d->quit && fake_script("ignore_quit", 0) != NULL)
			d->quit = false;
	}
}

static int daemon_main(bool v3, const char *conf)
{
	static struct fake_daemon d = {.v2_centipercent = 10000};
	char path[256];
	int fd;

	if (fake_script("start_fails", 0) != NULL) {
		printf("Failed to start: no CUDA-capable device is detected\n");
		return 1;
	}
	if (strlen(pipe_dir()) > 85)
		return 1; /* without a word */
	fd = connect_daemon();
	if (fd >= 0) {
		printf("An instance of this daemon is already running\n");
		return 1;
	}
	d.pipe_dir = pipe_dir();
	d.v3 = v3;
	if (conf != NULL && !apply(&d, conf)) {
		printf("Error: invalid configuration %s\n", conf);
		return 1;
	}
	mkdir(pipe_dir(), 0755);
	fd = listen_at("control");
	if (fd < 0)
		return 1;
	make_file("control_lock", S_IFREG);
	(void)!listen_at("control_privileged");
	make_file("log", S_IFIFO);
	printf("To connect CUDA applications to this daemon, set %sCUDA_MPS_PIPE_DIRECTORY=%s\n",
	       v3 ? "" : "env ", pipe_dir());
	fflush(stdout);
	if (v3)
		start_server(&d);
	serve(&d, fd);
	if (d.server_pid > 0)
		kill(d.server_pid, SIGKILL);
	snprintf(path, sizeof(path), "%s/log", pipe_dir());
	unlink(path); /* the sockets stay */
	return 0;
}

int main(int argc, char **argv)
{
	const char *name = strrchr(argv[0], '/'), *conf = NULL;
	bool v3 = false, run = false, old = fake_script("protocol", 0) != NULL;
	int i = 1;

	name = name != NULL ? name + 1 : argv[0];
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_IGN);
	if (strcmp(name, "nvidia-cuda-mps-server") == 0) {
		for (;;)
			pause();
	}
	for (; i < argc && argv[i][0] == '-'; i++) {
		if (strcmp(argv[i], "-p") == 0 && i + 1 < argc && !old)
			v3 = argv[++i][0] == '3';
		else if (strcmp(argv[i], "-a") == 0 && i + 1 < argc && !old)
			conf = argv[++i];
		else if (strcmp(argv[i], "-f") == 0)
			run = true;
		else if (strcmp(argv[i], "-q") == 0 && v3)
			return front_end(true, argv + i, 1);
		else if (strcmp(argv[i], "-m") != 0 || old)
			return front_end(false, NULL,
					 0); /* what it does not know makes it a front end */
	}
	if (run)
		return daemon_main(v3, conf);
	return front_end(v3, argv + i, argc - i);
}
