=== variables and folders stay
x=5; mkdir -p a/b; cd a/b
#>
echo $((x * 2)); basename "$PWD"
#> 10
#> b

=== a failed cell leaves nothing
echo one > file
#>
echo two >> file; x=spoiled; cd /; false
#! error
cat file; echo "[$x]"; basename "$PWD"
#> one
#> []
#> work

=== a repository is made and committed to [needs=git]
git init -q -b main . && git config user.name A && git config user.email a@example.org
#>
echo one > file; git add file; git commit -q -m first; git log --oneline | wc -l
#> 1
echo two >> file; git diff --stat | tail -n 1
#>  1 file changed, 1 insertion(+)
git commit -qam second; git show --stat HEAD | tail -n 1; git status --short
#>  1 file changed, 1 insertion(+)

=== branches are merged, with a conflict that is solved [needs=git]
git init -q -b main . && git config user.name A && git config user.email a@example.org && echo base > f && git add f && git commit -qm base
#>
git switch -qc topic; echo topic > f; git commit -qam topic; git switch -q main; echo main > f; git commit -qam main
#>
git merge -q topic
#~ (?s).*CONFLICT.*
#! error
git merge topic > /dev/null || true; git status --short
#> UU f
echo both > f; git add f; git commit -qm merged; git log --oneline | wc -l; cat f
#> 4
#> both

=== a change is stashed, reverted and reset [needs=git]
git init -q -b main . && git config user.name A && git config user.email a@example.org && echo 1 > f && git add f && git commit -qm one && echo 2 > f && git commit -qam two
#>
echo 3 > f; git stash -q; cat f; git stash pop -q; cat f
#> 2
#> 3
git checkout -q -- f; git revert --no-edit HEAD > /dev/null; cat f
#> 1
git reset -q --hard HEAD~1; cat f; git tag v1; git describe --tags
#> 2
#> v1

=== a patch is made and applied [needs=git,patch]
printf 'a\nb\nc\n' > old; sed s/b/B/ old > new; diff -u old new > change.patch
#! error
printf 'a\nb\nc\n' > old; sed s/b/B/ old > new; diff -u old new > change.patch || patch old < change.patch
#> patching file old
diff old new && echo same
#> same

=== a program is built by make [needs=make,gcc]
printf 'int puts(const char *); int main(void) { puts("built"); return 0; }\n' > main.c
printf 'app: main.c\n\t$(CC) -o app main.c\n' > Makefile
#>
make -s && ./app
#> built
make
#> make: 'app' is up to date.
touch -d 2000-01-01 app; make -n
#> cc -o app main.c

=== a build that fails [needs=make,gcc]
printf 'int main(void) { return x; }\n' > main.c; printf 'app: main.c\n\tcc -o app main.c\n' > Makefile
#>
make -s
#! error
sed -i 's/return x/return 0/' main.c; make -s && echo built
#> built

=== rules and variables of make [needs=make]
printf 'FILES = a b\nall: $(FILES:%%=%%.out)\n%%.out:\n\t@echo $* > $@\nclean:\n\trm -f *.out\n.PHONY: all clean\n' > Makefile
#>
make -s -j2; cat a.out b.out
#> a
#> b
make -s clean; ls
#> Makefile

=== an archive is made, listed and unpacked [needs=tar,gzip]
mkdir -p src/sub; echo 1 > src/one; echo 2 > src/sub/two; tar czf src.tar.gz src; tar tzf src.tar.gz | sort
#> src/
#> src/one
#> src/sub/
#> src/sub/two
rm -r src; tar xzf src.tar.gz; cat src/sub/two
#> 2
mkdir out; tar xf src.tar.gz -C out --strip-components=1; ls out
#> one
#> sub

=== an archive with rights and links [needs=tar,xz]
mkdir d; echo x > d/f; chmod 750 d/f; ln -s f d/link; tar cJf d.tar.xz d; rm -r d; tar xJf d.tar.xz
#>
stat -c %a d/f; readlink d/link
#> 750
#> f

=== files are packed and unpacked [needs=zip,unzip,gzip]
echo hello > f; zip -q f.zip f; gzip -k f; rm f; unzip -q f.zip; zcat f.gz; cat f
#> hello
#> hello

=== files are found
mkdir -p a/b; touch a/x.py a/b/y.py a/z.txt; find . -name '*.py' | sort
#> ./a/b/y.py
#> ./a/x.py
find a -type f -name '*.txt' -exec basename {} \;
#> z.txt
find . -type d -empty; find . -type f | xargs -n1 basename | sort | paste -sd' '
#> x.py y.py z.txt

=== text is searched
printf 'alpha 1\nbeta 2\nAlpha 3\n' > t; grep -n alpha t; grep -ic alpha t
#> 1:alpha 1
#> 2
grep gamma t
#! error
grep -oE '[0-9]+' t | paste -sd+; grep -v beta t | wc -l
#> 1+2+3
#> 2

=== text is changed
printf 'one two\nthree four\n' > t; sed -i 's/o/0/g; 2d' t; cat t
#> 0ne tw0
awk '{ print $2, NF }' t; printf '3\n1\n2\n' | sort -n | awk '{ s += $1 } END { print s, NR }'
#> tw0 2
#> 6 3

=== columns are cut, sorted and counted
printf 'b,2\na,1\nb,3\n' > t.csv; cut -d, -f1 t.csv | sort | uniq -c | awk '{ print $1 $2 }'
#> 1a
#> 2b
sort -t, -k2 -nr t.csv | head -n 1; tr a-z A-Z < t.csv | tail -n 1
#> b,3
#> B,3

=== a document is written
cat > config.yml <<'EOF'
name: $HOME
list:
  - a
EOF
cat config.yml
#> name: $HOME
#> list:
#>   - a
cat <<EOF | wc -w
$(echo two words)
EOF
#> 2

=== loops, conditions and functions
for i in 1 2 3; do if [ $((i % 2)) -eq 0 ]; then echo even; else echo odd; fi; done
#> odd
#> even
#> odd
greet() { local name=${1:-world}; echo "hello $name"; }; greet; greet you
#> hello world
#> hello you
greet again; i=0; while (( i < 2 )); do ((i += 1)); done; echo $i
#> hello again
#> 2

=== arrays and strings
list=(a "b c" d); echo ${#list[@]} "${list[1]}"; name=file.tar.gz; echo ${name%%.*} ${name##*.} ${name/tar/zip}
#> 3 b c
#> file gz file.zip.gz
list+=(e); printf '%s|' "${list[@]}"; echo; declare -A map=([k]=v); echo ${map[k]} ${!map[@]} ${list[0]^^}
#> a|b c|d|e|
#> v k A

=== a case and a pattern
kind() { case $1 in *.py) echo python;; *.[ch]) echo c;; *) echo other;; esac; }; kind a.py; kind b.h; kind c
#> python
#> c
#> other
[[ abc123 =~ ([a-z]+)([0-9]+) ]] && echo ${BASH_REMATCH[2]}
#> 123

=== a failure within a pipe
false | true; echo $?; set -o pipefail
#> 0
false | true
#! error
set +o pipefail; false | true; echo $?
#> 0

=== a script that stops at the first error
printf 'set -e\necho one\nfalse\necho never\n' > s.sh
#>
bash s.sh
#> one
#! error
bash s.sh || echo "code $?"
#> one
#> code 1

=== a script with arguments, made executable
printf '#!/bin/bash\necho "$# $1 $@"\n' > run.sh; chmod +x run.sh; ./run.sh a 'b c'
#> 2 a a b c

=== a command that is not there
no_such_command
#! error
no_such_command 2> /dev/null || echo $?
#> 127

=== an unknown option is an error
ls --no-such-option
#! error
rm missing; echo $?
#> 1

=== work in the background is waited for
for i in 1 2 3; do (sleep 0.0$i; echo $i > $i) & done; wait; cat 1 2 3
#> 1
#> 2
#> 3

=== work in the background is left and ended
sleep 60 & echo $! > pid
#>
kill $(cat pid) && echo ended
#> ended

=== a program in the background answers through files
(until [ -s question ]; do sleep 0.01; done; tr a-z A-Z < question > made; mv made answer) &
#>
echo hello > asked; mv asked question; until [ -e answer ]; do sleep 0.01; done; cat answer
#> HELLO

=== a named pipe is not permitted
mkfifo queue
#! error
echo on
#> on

=== traps and cleaning up [cells]
trap 'echo cleaned' EXIT; echo work
#> work
#> cleaned
echo next
#> next

=== a command with a time limit
timeout 0.1 sleep 60; echo $?
#> 124

=== a loop without an end
while :; do :; done
#! timeout
echo on
#> on

=== Python from the shell
python3 -c 'print(sum(range(5)))'; echo '{"a": [1, 2]}' | python3 -m json.tool --compact
#> 10
#> {"a":[1,2]}
printf 'import sys\nprint(len(sys.stdin.read()))\n' > n.py; printf 'abc' | python3 n.py
#> 3
python3 -c 'import sys; sys.exit(4)'
#! error

=== Python's tests from the shell
printf 'import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(1, 2)\n' > test_it.py; python3 -m unittest -q 2>&1 | tail -n 1
#> FAILED (failures=1)
sed -i 's/1, 2/1, 1/' test_it.py; python3 -m unittest -q 2>&1 | tail -n 1
#> OK

=== JSON is asked [needs=jq]
echo '{"a": {"b": [1, 2, 3]}}' > d.json; jq '.a.b | add' d.json; jq -r '.a | keys[]' d.json
#> 6
#> b
jq .x.y d.json; echo broken > d.json; jq . d.json
#> null
#! error

=== a database is asked [needs=sqlite3]
sqlite3 t.db 'create table t (n); insert into t values (1), (2)'; sqlite3 t.db 'select sum(n) from t'
#> 3
sqlite3 t.db 'select wrong from t'
#! error

=== numbers, dates and random choices
echo $((2**10)) $((0x1f)) $((7 / 2)); printf '%05.2f %x %s\n' 3.14159 255 end
#> 1024 31 3
#> 03.14 ff end
date -u -d '2024-02-29 +1 year' +%F; seq -s, 1 2 7; [ $RANDOM -ge 0 ] && echo yes
#> 2025-03-01
#> 1,3,5,7
#> yes

=== rights and links
echo x > f; chmod 600 f; ln -s f l; ln f h; stat -c '%a %h' f; readlink -f l | xargs basename
#> 600 2
#> f
chmod 000 f; cat f
#! error
umask 077; touch g; stat -c %a g
#> 600

=== a large output
seq 100000 | tail -n 1; seq 100000 | md5sum | cut -c1-8
#> 100000
#> dea9193b
yes
#~ (?s)y\n.*
#! output_limit
echo on
#> on

=== sums of files and their differences
printf 'a\n' > x; printf 'b\n' > y; cmp -s x y || echo differ
#> differ
sha256sum x | cut -c1-8; wc -c < y; diff x y
#> 87428fc5
#> 2
#> 1c1
#> < a
#> ---
#> > b
#! error

=== names with spaces and other letters
mkdir 'a folder'; touch 'a folder/ä ö.txt'; find . -name '*.txt' -print0 | xargs -0 ls; cd 'a folder'; ls | wc -l
#> ./a folder/ä ö.txt
#> 1
for f in *; do echo "${f// /_}"; done
#> ä_ö.txt

=== input from a string and from nothing
read -r a b <<< "one two"; echo $b; read -r line || echo empty; wc -c < /dev/null
#> two
#> empty
#> 0

=== the environment of a program
export NAME=value; sh -c 'echo $NAME'; OTHER=1 sh -c 'echo ${OTHER}x'; echo [${OTHER-}]
#> value
#> 1x
#> []
env | grep -c ^NAME=; unset NAME; echo ${NAME:-unset}
#> 1
#> unset
