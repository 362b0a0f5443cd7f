"""past_writer.py DIR GO SEED: changes a tree in every way until the file GO is gone."""

import os
import random
import shutil
import sys

root, go, seed = sys.argv[1:]
random.seed(seed)
done = 0


def files():
    found = []
    for directory, _, names in os.walk(root):
        found += [os.path.join(directory, name) for name in names]
    return [path for path in found if os.path.isfile(path) and not os.path.islink(path)]


known = files()
while os.path.exists(go):
    if done % 2000 == 0:
        known = files()
    path = random.choice(known)
    way = random.randrange(7)
    try:
        if way == 0:
            with open(path, "r+b") as file:
                file.seek(random.randrange(max(os.path.getsize(path), 1)))
                file.write(os.urandom(random.randrange(1, 9000)))
        elif way == 1:
            os.truncate(path, random.randrange(20000))
        elif way == 2:
            os.replace(path, os.path.join(random.choice([root, os.path.dirname(path)]), f"moved {done}"))
        elif way == 3:
            os.remove(path)
        elif way == 4:
            with open(os.path.join(os.path.dirname(path), f"made {done % 300}"), "wb") as file:
                file.write(os.urandom(random.randrange(30000)))
        elif way == 5:
            os.chmod(path, random.randrange(0o1000))
        else:
            directory = os.path.join(root, f"directory {done % 10}")
            shutil.rmtree(directory, ignore_errors=True)
            os.makedirs(directory)
            shutil.copy(path, directory)
    except FileNotFoundError:
        pass
    done += 1
    if len(known) < 100:
        sys.exit("nothing is left to change")
print(f"{done} changes")
