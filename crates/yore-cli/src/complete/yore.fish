# Completion of yore for fish. It asks yore what can follow, also which snapshots there are; where that is nothing, files are offered.
function __yore_complete
    set -l words (commandline -opc) (commandline -ct)
    $words[1] complete -- $words[2..-1] 2>/dev/null
end
complete -c yore -f -a '(__yore_complete)'
complete -c yore -n 'test (count (__yore_complete)) -eq 0' -F
