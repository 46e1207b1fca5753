/* tessera-hook: `tessera-enforcer hook` as a program that needs no libraries, because runtimes start hooks
 * on the host, where ours are not. It asks the agent; it cannot set limits itself. */
#include <unistd.h>

#include "enforcer/hook.h"

int main(int argc, char **argv)
{
	return en_hook_main(argc, argv, STDIN_FILENO, STDERR_FILENO, "/proc", NULL);
}
