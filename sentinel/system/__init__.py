"""The operating system's door: processes by pidfd, /proc, cgroups, peers, child processes in frames."""
